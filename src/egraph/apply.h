/* What a run (run.c) and the application of its matches (apply.c) share. */
#ifndef EG_APPLY_H
#define EG_APPLY_H

#include "egraph/rules.h"

typedef struct run {
    eg *g;
    eg_rule *const *rules;
    u32 nrules;
    const eqf_schedule *sched;
    u32 *state; /* index in g->rule, by rule */
    eg_matches *matches;
    eg_indexes indexes;
    u8 *cut;
    i64 backoff_limit, backoff_ban;
    double lap;      /* when the part that is timed now began */
    double deadline; /* < 0: none */
    eqf_stop stop;
    bool stopping;
    bool changed; /* in this iteration */
    eqf_status status;
    eqf_run_report report;
} run;

void eg_stop_for(run *r, eqf_stop why);
/* Stops for what refused a reservation. */
void eg_stop_for_memory(run *r);
/* Time and the caller's flag; true when the run has to end. */
bool eg_poll(void *user);
/* Applies all matches of rule i and gives them back; r->changed is set if any changed the e-graph,
 * r->cut[i] if a limit came first. */
void eg_apply(run *r, u32 i);

#endif
