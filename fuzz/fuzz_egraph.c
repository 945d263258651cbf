/* Fuzz target of the e-graph engine: suites (the reader of terms, rules, cases and families, then a
 * short bounded run with proofs), extraction-gym JSON and proofs, after a NUL with rules of their own
 * before it. The first byte picks one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eqf_egraph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    eqf_ctx *ctx = n ? eqf_ctx_new(NULL) : NULL;
    if (!ctx)
        return 0;
    eqf_text text = {(const char *)data + 1, n - 1};
    if (data[0] % 4 < 2) {
        eqf_suite_options o = {.repeat = 1, .bytes = 4 << 20, .proofs = data[0] % 4 == 1};
        eqf_suite_run(ctx, "fuzz", text, &o, NULL, NULL);
    } else if (data[0] % 4 == 2) {
        eqf_gym *gym;
        if (eqf_read_json(ctx, "fuzz", text, &gym) == EQF_OK) {
            size_t roots;
            const eqf_class *at = eqf_gym_roots(gym, &roots);
            eqf_cost cost = eqf_gym_cost(gym);
            eqf_extraction *x;
            cost.seconds = 0.1;
            if (eqf_check(eqf_gym_egraph(gym)))
                abort();
            if (eqf_extract(eqf_gym_egraph(gym), at, roots, &cost, EQF_EXACT, &x) == EQF_OK)
                eqf_extraction_free(x);
            eqf_gym_free(gym);
        }
    } else {
        eqf_checking given = {.rules = eqf_text_of("(rule c (+ ?a ?b) => (+ ?b ?a))")};
        eqf_check_report report;
        const char *split = n > 1 ? memchr(text.at, 0, text.n) : NULL;
        if (split) {
            given.rules = (eqf_text){text.at, (size_t)(split - text.at)};
            text = (eqf_text){split + 1, text.n - given.rules.n - 1};
        }
        eqf_proof_check(ctx, text, eqf_text_of("(+ x y)"), eqf_text_of("(+ y z)"), &given,
                        &report);
    }
    eqf_ctx_free(ctx);
    return 0;
}

#ifdef EQF_REPLAY
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        static uint8_t data[1 << 20];
        FILE *f = fopen(argv[i], "rb");
        size_t n = f ? fread(data, 1, sizeof data, f) : 0;
        if (f)
            fclose(f);
        LLVMFuzzerTestOneInput(data, n);
    }
    return 0;
}
#endif
