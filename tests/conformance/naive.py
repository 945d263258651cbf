#!/usr/bin/env python3
"""Recomputes the checks of a suite file with the simplest e-graph there is.

    python3 tests/conformance/naive.py tests/conformance/further.eqf [--egglog]

Every check of size, trace, count, equality and stop is made again by an implementation that shares
nothing with the engine: a set of e-nodes, repaired as a whole until nothing changes, searched as a
whole in each iteration. It knows plain rules, multipatterns, distinct, eq, :hide, steps, marks and
the simple scheduler; costs are left out. With --egglog the cases with plain rules and one run are
repeated with egglog (needs its wheel). Prints what differs; exit 1 if anything does.
"""

from __future__ import annotations

import copy
import itertools
import re
import sys


def parse(text: str) -> list:
    tokens = re.findall(r'"[^"]*"|[()]|[^\s()]+', re.sub(r";[^\n]*", "", text))
    stack: list[list] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0]


class Graph:
    def __init__(self):
        self.parent, self.node, self.hidden = [], {}, set()

    def find(self, c):
        while self.parent[c] != c:
            c = self.parent[c]
        return c

    def add_node(self, op, kids):
        key = (op, tuple(self.find(k) for k in kids))
        if key not in self.node:
            self.parent.append(len(self.parent))
            self.node[key] = len(self.parent) - 1
            self.changed = True
        return self.find(self.node[key])

    def add(self, t, env):
        if isinstance(t, str):
            return self.find(env[t]) if t.startswith("?") else self.add_node(t, ())
        return self.add_node((t[0], len(t) - 1), [self.add(k, env) for k in t[1:]])

    def look(self, t, env):
        """Class of a term that is present, else None."""
        if isinstance(t, str):
            if t.startswith("?"):
                return self.find(env[t])
            key = (t, ())
        else:
            kids = [self.look(k, env) for k in t[1:]]
            if None in kids:
                return None
            key = ((t[0], len(t) - 1), tuple(kids))
        return self.find(self.node[key]) if key in self.node else None

    def union(self, a, b):
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[max(a, b)] = min(a, b)
            self.changed = True

    def rebuild(self):
        while True:
            fresh, hidden, again = {}, set(), False
            for (op, kids), c in self.node.items():
                key = (op, tuple(self.find(k) for k in kids))
                if (op, kids) in self.hidden:
                    hidden.add(key)
                if key in fresh and self.find(fresh[key]) != self.find(c):
                    self.union(fresh[key], c)
                    again = True
                fresh[key] = self.find(c)
            same = fresh == self.node
            self.node, self.hidden = fresh, hidden
            if same and not again:
                return

    def visible(self):
        return [(k, self.find(c)) for k, c in self.node.items() if k not in self.hidden]

    def size(self):
        return len(self.visible()), len({self.find(c) for c in self.node.values()})

    def match(self, p, c, env, nodes):
        """Extensions of env by which pattern p is in class c."""
        if isinstance(p, str) and p.startswith("?"):
            if p not in env:
                yield {**env, p: c}
            elif env[p] == c:
                yield env
            return
        op, kids = (p, []) if isinstance(p, str) else ((p[0], len(p) - 1), p[1:])
        for found, args in nodes.get(c, ()):
            if found != op:
                continue
            envs = [env]
            for kid, arg in zip(kids, args):
                envs = [e for f in envs for e in self.match(kid, arg, f, nodes)]
            yield from envs

    def by_class(self):
        nodes = {}
        for (op, kids), c in self.visible():
            nodes.setdefault(c, []).append((op, kids))
        return nodes

    def search(self, sides):
        """sides: (variable of the class, pattern or None) that hold together."""
        nodes = self.by_class()
        classes = sorted({self.find(c) for c in self.node.values()})
        envs = [{}]
        for v, p in sides:
            out = []
            for e in envs:
                for c in [e[v]] if v in e else classes:
                    f = {**e, v: c}
                    out += [f] if p is None else self.match(p, c, f, nodes)
            envs = out
        return [dict(e) for e in {tuple(sorted(e.items())) for e in envs}]


class Rule:
    def __init__(self, form):
        arrow = form.index("=>")
        rest = form[arrow + 1:]
        self.hide = ":hide" in rest
        self.guard = rest[rest.index(":when") + 1] if ":when" in rest else None
        if form[0] == "rule":
            self.left, self.right = [("?root", form[2])], [("?root", form[4])]
        else:
            self.left = [(s[0], p) for s in form[2:arrow] for p in s[1:] or [None]]
            self.right = [(s[0], p) for s in rest if isinstance(s, list) for p in s[1:]]

    def holds(self, g, env, frozen):
        if self.guard is None:
            return True
        kind, a, b = self.guard
        if kind == "eq":
            return not frozen or None is not g.look(a, env) == g.look(b, env)
        assert kind == "distinct"
        return frozen or g.find(env[a]) != g.find(env[b])


def rules_of(forms):
    out = []
    for f in forms:
        if f[0] == "rule" and f[3] == "<=>":
            out += [Rule(f[:3] + ["=>", f[4]]), Rule([f[0], f[1], f[4], "=>", f[2]])]
        elif f[0] in ("rule", "multi"):
            out.append(Rule(f))
    return out


def iterate(g, rules):
    g.changed = False
    found = [[e for e in g.search(r.left) if r.holds(g, e, True)] for r in rules]
    for rule, envs in zip(rules, found):
        for env in envs:
            if not rule.holds(g, env, False):
                continue
            key = None
            if rule.hide:
                key = ((rule.left[0][1][0], len(rule.left[0][1]) - 1),
                       tuple(g.look(k, env) for k in rule.left[0][1][1:]))
            made = dict(env)
            for v, p in rule.right:
                c = g.add(p, made)
                if v in made:
                    g.union(made[v], c)
                else:
                    made[v] = c
            if rule.hide:
                for op, kids in list(g.node):
                    if op == key[0] and tuple(map(g.find, kids)) == tuple(map(g.find, key[1])):
                        g.changed |= (op, kids) not in g.hidden
                        g.hidden.add((op, kids))
    g.rebuild()
    return g.changed


class Case:
    def __init__(self, form, rulesets):
        self.name, self.g, self.wrong, self.checks = form[1], Graph(), [], 0
        self.sets, self.rules, self.limit, self.trace = rulesets, [], 30, []
        self.stop, self.iterations, self.marks, self.roots = None, 0, {}, []
        clauses, self.plain = form[2:], True
        for c in clauses:
            if c[0] == "rules":
                self.forms = [f for x in c[1:] for f in (rulesets[x] if isinstance(x, str) else [x])]
                self.rules = rules_of(self.forms)
            elif c[0] == "limits" and ":iterations" in c:
                self.limit = int(c[c.index(":iterations") + 1])
        steps = next((c[1:] for c in clauses if c[0] == "steps"), None)
        self.scripted = steps is not None
        if steps is None:
            build = [c for c in clauses if c[0] in ("term", "union")]
            steps = build + [["rebuild"], ["run"]] + [c for c in clauses if c not in build]
        for s in steps:
            self.step(s)

    def check(self, what, found, wanted):
        self.checks += 1
        if found != wanted:
            self.wrong.append(f"{self.name}: {what}: naive has {found}, the file {wanted}")

    def run(self, limit):
        self.trace, self.stop = [], "iterations"
        for self.iterations in range(1, limit + 1):
            changed = iterate(self.g, self.rules)
            self.trace.append(self.g.size())
            if not changed:
                self.stop = "saturated"
                return

    def step(self, s):
        g = self.g
        if s[0] == "term":
            self.roots += [g.add(t, {}) for t in s[1:]]
        elif s[0] == "union":
            g.union(g.add(s[1], {}), g.add(s[2], {}))
        elif s[0] == "rebuild":
            g.rebuild()
        elif s[0] == "run":
            g.rebuild()
            self.run(int(s[s.index(":iterations") + 1]) if ":iterations" in s else self.limit)
        elif s[0] == "mark":
            self.marks[s[1]] = copy.deepcopy(g)
        elif s[0] == "undo":
            self.g = self.marks.pop(s[1])
        elif s[0] == "keep":
            self.marks.pop(s[1])
        elif s[0] == "size":
            nodes, classes = g.size()
            self.check("nodes", nodes, int(s[s.index(":nodes") + 1]))
            self.check("classes", classes, int(s[s.index(":classes") + 1]))
        elif s[0] == "trace-size":
            self.check("trace", [list(t) for t in self.trace], [[int(n) for n in t] for t in s[1:]])
        elif s[0] == "stop":
            self.check("stop", self.stop, s[1])
        elif s[0] == "iterations":
            self.check("iterations", self.iterations, int(s[1]))
        elif s[0] == "matches":
            self.check(f"matches of {s[1]}", len(g.search([("?root", s[1])])), int(s[2]))
        elif s[0] in ("equal", "notequal"):
            a, b = g.look(s[1], {}), g.look(s[2], {})
            self.check(f"{s[0]} {s[1]} {s[2]}", a is not None and a == b, s[0] == "equal")


# ---- egglog ----------------------------------------------------------------------------------


def egglog_sizes(case: Case, form) -> str | None:
    """The case in egglog's syntax; sizes are compared with the naive ones. None: not expressible."""
    if case.scripted or any(f[0] != "rule" or ":when" in f or ":hide" in f for f in case.forms):
        return None
    from egglog.bindings import EGraph

    ops: dict = {}

    def term(t):
        if isinstance(t, str):
            return t[1:] if t.startswith("?") else f'(Leaf "{t}")'
        name = ops.setdefault((t[0], len(t) - 1), f"Op{len(ops)}")
        return "(" + " ".join([name] + [term(k) for k in t[1:]]) + ")"

    rewrites = []
    for f in case.forms:
        pairs = [(f[2], f[4])] + ([(f[4], f[2])] if f[3] == "<=>" else [])
        rewrites += [f"(rewrite {term(a)} {term(b)})" for a, b in pairs]
    lets = []
    for c in form[2:]:
        if c[0] == "term":
            lets += [term(t) for t in c[1:]]
        elif c[0] == "union":
            lets.append(f"(union {term(c[1])} {term(c[2])})")
    types = "".join(f" ({name} {'T ' * arity})" for (_, arity), name in ops.items())
    program = f"(datatype T (Leaf String){types})\n" + "\n".join(rewrites + lets)
    g = EGraph()
    g.run_program(*g.parse_program(program + f"\n(run {len(case.trace)})"))
    sizes = g.run_program(*g.parse_program("(print-size)"))
    nodes = sum(int(n) for n in re.findall(r"\('[^']*', (\d+)\)", str(sizes)))
    if nodes != case.trace[-1][0]:
        return f"{case.name}: egglog has {nodes} e-nodes, naive {case.trace[-1][0]}"
    return ""


def main() -> None:
    forms = parse(open(sys.argv[1]).read())
    rulesets = {f[1]: [r for r in f[2:] if r[0] in ("rule", "multi")]
                for f in forms if f[0] == "ruleset"}
    wrong, checks, peers = [], 0, 0
    for form in (f for f in forms if f[0] == "case"):
        case = Case(form, rulesets)
        checks += case.checks
        wrong += case.wrong
        if "--egglog" in sys.argv:
            said = egglog_sizes(case, form)
            peers += said is not None
            wrong += [said] if said else []
    print(*wrong, f"{checks} checks, {len(wrong)} differ; {peers} cases in egglog", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
