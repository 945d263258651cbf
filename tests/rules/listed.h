/* Every rule that `rules list` prints and no file has is tried on random instances whose values are
 * compared, somewhere: which test does is said here, and that test counts by name what it compared.
 * A rule that is listed and belongs nowhere fails test_lab.c; one that its test never met, that test. */
#ifndef EQF_TEST_RULES_LISTED_H
#define EQF_TEST_RULES_LISTED_H

#include "rules/rule.h"

typedef enum listed {
    LISTED_NOWHERE,
    LISTED_AS_RULE,   /* written as a rule, in the lab: test_lab.c */
    LISTED_GENERATED, /* follows from an operator's row: test_generated.c */
    LISTED_STRUCTURE, /* holds by how e-nodes are made: test_structure.c */
    LISTED_JOINED,    /* test_join.c */
    LISTED_FUSED,     /* test_fuse.c */
    LISTED_VISITED    /* test_visit.c */
} listed;

/* Made of terms that a rule can be written with. */
static inline bool listed_is_rule(const rl_implied *r)
{
    static const char *const not_[] = {"...", " R ",       "(op ",    "(map ", "(loop ",
                                       "(get ", "splitdim", ":axis outer", "?K+?L", " PQ", "(cast "};
    for (i64 i = 0; i < COUNT_OF(not_); i++)
        if (strstr(r->left, not_[i]) || strstr(r->right, not_[i]))
            return false;
    return true;
}

static inline listed listed_in(const rl_implied *r)
{
    static const struct {
        const char *name;
        listed in;
    } others[] = {
        {"commute", LISTED_AS_RULE},       {"rename.rename", LISTED_GENERATED},
        {"normalise", LISTED_STRUCTURE},   {"map-of-less", LISTED_STRUCTURE},
        {"spell-square", LISTED_STRUCTURE}, {"spell-recip", LISTED_STRUCTURE},
        {"unrounded", LISTED_STRUCTURE},
        {"member-of-tuple", LISTED_STRUCTURE}, {"join-products", LISTED_JOINED},
        {"bundle.plain", LISTED_FUSED},    {"bundle.join", LISTED_FUSED},
        {"bundle.rolled", LISTED_FUSED},   {"bundle.single", LISTED_FUSED},
        {"loop.rolled", LISTED_FUSED},     {"loop.split", LISTED_FUSED},
        {"loop.reducer", LISTED_FUSED},    {"visit", LISTED_VISITED},
        {"visit.approx", LISTED_VISITED},  {"part", LISTED_FUSED},
    };
    for (i64 i = 0; i < COUNT_OF(others); i++)
        if (strcmp(others[i].name, r->name) == 0)
            return others[i].in;
    if (listed_is_rule(r))
        return LISTED_AS_RULE;
    return *r->source ? LISTED_NOWHERE : LISTED_GENERATED;
}

/* How many instances of each rule were compared. */
typedef struct listed_counts {
    arena *a;
    VEC(const char *) names;
    VEC(i64) times;
} listed_counts;

static inline void listed_count(listed_counts *c, const char *name, i64 times)
{
    i64 k = 0;
    while (k < c->names.n && strcmp(c->names.at[k], name) != 0)
        k++;
    if (k == c->names.n) {
        vec_push(c->a, &c->names, arena_strdup(c->a, name));
        vec_push(c->a, &c->times, 0);
    }
    c->times.at[k] += times;
}

/* Fails when a rule of this place was compared less often; how many rules there are. */
static inline i64 listed_check(const listed_counts *c, listed in, i64 least)
{
    rl_implied_list all = {0};
    i64 rules = 0;
    rl_list_implied(c->a, &all);
    for (i64 i = 0; i < all.n; i++) {
        i64 k = 0;
        if (listed_in(&all.at[i]) != in)
            continue;
        while (k < c->names.n && strcmp(c->names.at[k], all.at[i].name) != 0)
            k++;
        i64 times = k < c->names.n ? c->times.at[k] : 0;
        if (times < least)
            fail_msg("%s: %lld instances", all.at[i].name, (long long)times);
        rules++;
    }
    return rules;
}

#endif
