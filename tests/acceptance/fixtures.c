/* Every fixture, end to end: the three forms give one program; `optimize` and `run` give its
 * recorded outputs.
 *
 *     fixtures TOOL DIRECTORY SCRATCH SHARD SHARDS [NAME...]
 *
 * For each fixture of DIRECTORY/manifest.json in this shard: `inspect --text` of each form prints
 * the same program (modules; in recorded calls the core form may spell a loss or a series in its
 * own way, and is then checked by itself); each *distinct* program is optimized (with CC from the environment), run on the
 * recorded inputs and compared with the recorded f64 outputs: relative L2 per output at most the
 * tolerance of its dtype class (1e-5; 1e-2 for half types) or twice eager's own error where that is
 * larger; integers and bools equal; non-finite values at the same places.
 * Operators that nothing here can run: `optimize` must exit with 1, and the manifest must say that
 * the fixture has boundaries. A training form whose vmap is unresolved is not compared.
 * Prints a line for each fixture and, at the end, "N passed, N failed". Exit 0 when none failed. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

typedef struct setting {
    const char *tool, *directory, *scratch;
    eqf_ctx *ctx;
} setting;

/* Runs a shell command; its exit status, output and errors in `log` (last 400 bytes kept). */
static int run(const char *command, char *log, size_t size)
{
    log[0] = 0;
    FILE *f = popen(command, "r");
    if (!f)
        return -1;
    char line[1024];
    while (fgets(line, sizeof line, f)) {
        size_t n = strlen(line), have = strlen(log);
        if (have + n + 1 > size) {
            have = 0;
            log[0] = 0;
        }
        if (n + 1 <= size)
            memcpy(log + have, line, n + 1);
    }
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static const tensor *find(const tensor *set, i64 n, const char *name)
{
    for (i64 i = 0; i < n; i++)
        if (strcmp(set[i].name, name) == 0)
            return &set[i];
    return NULL;
}

/* Relative L2 distance over the places where both are finite; infinite when non-finite values
 * differ or the shapes do. */
static f64 distance(eqf_ctx *ctx, const tensor *got, const tensor *want)
{
    if (got->rank != want->rank)
        return HUGE_VAL;
    for (i64 d = 0; d < got->rank; d++)
        if (got->shape[d] != want->shape[d])
            return HUGE_VAL;
    i64 n = tensor_count(ctx, want->rank, want->shape);
    f64 difference = 0, norm = 0;
    for (i64 i = 0; i < n; i++) {
        if (!dtype_is_float(want->type)) {
            if (dtype_is_float(got->type) || tensor_get_i64(got, i) != tensor_get_i64(want, i))
                return HUGE_VAL;
            continue;
        }
        if (!dtype_is_float(got->type))
            return HUGE_VAL;
        f64 a = tensor_get_f64(got, i), b = tensor_get_f64(want, i);
        bool overflow = isinf(a) && isfinite(b) && fabs(b) > 65504 && got->type == DT_f16;
        if (overflow)
            continue;
        if (!isfinite(a) || !isfinite(b)) {
            if ((isnan(a) && isnan(b)) || a == b)
                continue;
            return HUGE_VAL;
        }
        difference += (a - b) * (a - b);
        norm += b * b;
    }
    if (difference == 0)
        return 0;
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static bool is_half(dtype t)
{
    return t == DT_f16 || t == DT_bf16;
}

static bool compare(const setting *s, const char *base, const char *out, f64 tolerance, char *why,
                    size_t size)
{
    arena *a = arena_new(s->ctx, 0);
    trap t;
    volatile bool ok = true;
    TRY(s->ctx, t)
    {
        i64 n_got, n_want, n_eager;
        const tensor *got = safetensors_read(a, out, &n_got);
        const tensor *want =
            safetensors_read(a, arena_printf(a, "%s.f64.safetensors", base), &n_want);
        const tensor *eager =
            safetensors_read(a, arena_printf(a, "%s.eager.safetensors", base), &n_eager);
        if (n_got != n_want) {
            snprintf(why, size, "%lld outputs, not %lld", (long long)n_got, (long long)n_want);
            ok = false;
        }
        for (i64 i = 0; i < n_want && ok; i++) {
            const tensor *g = find(got, n_got, want[i].name);
            const tensor *e = find(eager, n_eager, want[i].name);
            if (!g || strcmp(got[i].name, want[i].name) != 0) {
                snprintf(why, size, "output %s is missing or out of order", want[i].name);
                ok = false;
            } else if (e && g->type != e->type) {
                snprintf(why, size, "output %s is %s, not %s", want[i].name, dtype_name(g->type),
                         dtype_name(e->type));
                ok = false;
            } else {
                f64 d = distance(s->ctx, g, &want[i]);
                f64 d_eager = e ? distance(s->ctx, e, &want[i]) : 0;
                f64 limit = is_half(g->type) ? MAX(tolerance, 1e-2) : tolerance;
                if (!(d <= MAX(limit, 2 * d_eager))) {
                    snprintf(why, size, "output %s: relative L2 %.3g (eager %.3g)", want[i].name, d,
                             d_eager);
                    ok = false;
                }
            }
        }
    }
    if (t.status != EQF_OK) {
        eqf_diag d = eqf_diag_get(s->ctx, eqf_diag_count(s->ctx) - 1);
        snprintf(why, size, "%s: %s: %s", d.file, d.place, d.message);
        ok = false;
    }
    eqf_ctx_clear(s->ctx);
    arena_free(a);
    return ok;
}

/* What `inspect --json` says of operators that nothing here can run. */
typedef enum blocked { BLOCKED_NO, BLOCKED_VMAP, BLOCKED_YES } blocked;
static blocked find_blocked(const char *json_file)
{
    json_t *report = json_load_file(json_file, 0, NULL), *entry;
    size_t i;
    blocked result = report ? BLOCKED_NO : BLOCKED_YES;
    json_array_foreach(json_object_get(report, "boundaries"), i, entry)
    {
        const char *op = json_string_value(json_object_get(entry, "op"));
        if (json_is_true(json_object_get(entry, "runs")))
            continue;
        bool is_vmap = op && strncmp(op, "torch._functorch.", 17) == 0;
        result = MAX(result, is_vmap ? BLOCKED_VMAP : BLOCKED_YES);
    }
    json_decref(report);
    return result;
}

/* Time for candidates of one fixture in thirty: each is verified by the tool, and none may fail. */
static const char *budget_of(const char *name)
{
    unsigned sum = 0;
    for (; *name; name++)
        sum = sum * 31 + (unsigned char)*name;
    return sum % 30 == 0 ? "4" : "0.01";
}

static bool check(const setting *s, const char *name, const json_t *fixture, char *why, size_t size)
{
    char base[512], dims[512] = "", command[8192], log[2048], texts[3][1024] = {{0}}, first[1024] = "";
    const char *folder = json_string_value(json_object_get(fixture, "folder"));
    const char *class_ = json_string_value(json_object_get(fixture, "dtype"));
    snprintf(base, sizeof base, "%s/%s/%s", s->directory, folder, name);
    const char *symbol;
    json_t *value;
    json_object_foreach(json_object_get(fixture, "symbols"), symbol, value)
    {
        size_t n = strlen(dims);
        snprintf(dims + n, sizeof dims - n, " --dim %s=%lld", symbol,
                 (long long)json_integer_value(value));
    }
    bool half = class_ && strcmp(class_, "f32") != 0 && strcmp(class_, "f64") != 0;
    size_t i;
    json_t *form;
    int distinct = 0;
    const json_t *boundaries = json_object_get(fixture, "boundaries");
    f64 tolerance = json_number_value(json_object_get(fixture, "tolerance"));
    if (tolerance <= 0)
        tolerance = half ? 1e-2 : 1e-5;
    json_array_foreach(json_object_get(fixture, "forms"), i, form)
    {
        const char *f = json_string_value(form);
        char text[1024];
        snprintf(text, sizeof text, "%s/%s.%s.eqf", s->scratch, name, f);
        snprintf(command, sizeof command, "'%s' inspect --quiet --text%s '%s.%s.pt2' >'%s' 2>&1",
                 s->tool, dims, base, f, text);
        if (run(command, log, sizeof log) != 0) {
            snprintf(command, sizeof command, "head -c 300 '%s'", text);
            run(command, log, sizeof log);
            snprintf(why, size, "form %s: inspect: %s", f, log);
            return false;
        }
        char report[1100];
        snprintf(report, sizeof report, "%s/%s.json", s->scratch, name);
        snprintf(command, sizeof command, "'%s' inspect --quiet --json%s '%s.%s.pt2' | tail -n 1 >'%s'",
                 s->tool, dims, base, f, report);
        run(command, log, sizeof log);
        blocked b = find_blocked(report);
        if (b == BLOCKED_VMAP && strcmp(f, "T") == 0)
            continue;
        if (b != BLOCKED_NO && json_array_size(boundaries) == 0) {
            snprintf(why, size, "form %s: a boundary that the manifest does not name", f);
            return false;
        }
        memcpy(texts[i], text, sizeof text);
        bool same = false;
        for (size_t k = 0; k < i && !same; k++) {
            if (!texts[k][0])
                continue;
            snprintf(command, sizeof command, "cmp -s '%s' '%s'", texts[i], texts[k]);
            same = run(command, log, sizeof log) == 0;
        }
        if (same)
            continue;
        if (distinct++ > 0 && strcmp(folder, "modules") == 0) {
            snprintf(why, size, "form %s: another program than form %s", f, first);
            return false;
        }
        snprintf(first, sizeof first, "%s", f);
        snprintf(command, sizeof command,
                 "'%s' optimize --quiet --json --budget %s%s --inputs '%s.in.safetensors' "
                 "-o '%s/%s.pkg' '%s.%s.pt2' 2>&1 >'%s'",
                 s->tool, budget_of(name), dims, base, s->scratch, name, base, f, report);
        int status = run(command, log, sizeof log);
        if (b != BLOCKED_NO) {
            if (status == 1)
                return true;
            snprintf(why, size, "form %s: optimize: exit %d, wanted 1", f, status);
            return false;
        }
        if (status != 0) {
            snprintf(why, size, "form %s: optimize: exit %d: %s", f, status, log);
            return false;
        }
        snprintf(command, sizeof command, "grep -q '\"failed\":0' '%s' || { tail -c 300 '%s'; false; }",
                 report, report);
        if (run(command, log, sizeof log) != 0) {
            snprintf(why, size, "form %s: a candidate failed: %s", f, log);
            return false;
        }
        snprintf(command, sizeof command,
                 "'%s' run --quiet '%s/%s.pkg' -i '%s.in.safetensors' -o '%s/%s.out' 2>&1 "
                 "&& '%s' run --quiet --check '%s/%s.pkg' 2>&1",
                 s->tool, s->scratch, name, base, s->scratch, name, s->tool, s->scratch, name);
        status = run(command, log, sizeof log);
        if (status != 0) {
            snprintf(why, size, "form %s: run: exit %d: %s", f, status, log);
            return false;
        }
        char out[1024];
        snprintf(out, sizeof out, "%s/%s.out", s->scratch, name);
        if (!compare(s, base, out, tolerance, why, size))
            return false;
        snprintf(command, sizeof command, "rm -rf '%s/%s.pkg' '%s'", s->scratch, name, out);
        run(command, log, sizeof log);
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: fixtures TOOL DIRECTORY SCRATCH SHARD SHARDS [NAME...]\n");
        return 2;
    }
    setting s = {argv[1], argv[2], argv[3], eqf_ctx_new(NULL)};
    int shard = atoi(argv[4]), shards = atoi(argv[5]), index = 0, passed = 0, failed = 0;
    char path[1024], why[4096], make[1100];
    snprintf(make, sizeof make, "mkdir -p '%s'", s.scratch);
    run(make, why, sizeof why);
    snprintf(path, sizeof path, "%s/manifest.json", s.directory);
    json_t *manifest = json_load_file(path, 0, NULL);
    const char *name;
    json_t *fixture;
    json_object_foreach(json_object_get(manifest, "fixtures"), name, fixture)
    {
        bool chosen = argc == 6 && index++ % shards == shard;
        for (int i = 6; i < argc; i++)
            chosen = chosen || strcmp(argv[i], name) == 0;
        if (!chosen)
            continue;
        bool ok = check(&s, name, fixture, why, sizeof why);
        printf("%s %s%s%s\n", ok ? "ok  " : "FAIL", name, ok ? "" : ": ", ok ? "" : why);
        fflush(stdout);
        passed += ok;
        failed += !ok;
    }
    json_decref(manifest);
    eqf_ctx_free(s.ctx);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
