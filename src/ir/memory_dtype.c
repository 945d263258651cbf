/* In which dtype a value lies in memory, when it does. Casts to and from half types are mostly no work of
 * their own: what was widened to f32 lies in its half type, and is widened where it is read; what is only
 * rounded to a half type is rounded where it is stored. Values that are moved lie as they did. */
#include "ir/ir.h"

static bool is_half(u8 t)
{
    return t == DT_f16 || t == DT_bf16;
}

static bool moves(const ir_node *n)
{
    return ir_row((ir_op)n->op)->class_ == IR_INDEX || n->op == IR_splitdim;
}

/* By term: the half type that its only reader rounds it to, or DT_NONE. */
static u8 *find_rounded(arena *a, const ir_program *p)
{
    u8 *to = NEW_N(a, u8, p->nodes.n);
    u32 *reader = NEW_N(a, u32, p->nodes.n);
    i64 *uses = NEW_N(a, i64, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++)
        uses[p->outputs.at[i].term.i] += 2;
    for (u32 t = (u32)p->nodes.n - 1; t > 0; t--) {
        const ir_node *n = &p->nodes.at[t];
        for (i64 i = 0; uses[t] && i < n->arg_count; i++) {
            uses[n->args[i].i]++;
            reader[n->args[i].i] = t;
        }
        if (uses[t] != 1 || n->dtype != DT_f32)
            continue;
        const ir_node *by = &p->nodes.at[reader[t]];
        to[t] = by->op == IR_cast && is_half(by->dtype) ? by->dtype : moves(by) ? to[reader[t]] : DT_NONE;
    }
    return to;
}

const u8 *ir_memory_dtypes(arena *a, const ir_program *p)
{
    u8 *lies = find_rounded(a, p);
    for (i64 t = 1; t < p->nodes.n; t++) {
        const ir_node *n = &p->nodes.at[t];
        u8 first = n->arg_count > 0 ? lies[n->args[0].i] : DT_NONE, own = n->dtype;
        bool is_made = n->op != IR_in && n->op != IR_const && lies[t] != DT_NONE;
        if (n->op == IR_cast && ir_get(p, n->args[0])->op != IR_const) {
            bool is_read = first == own || (is_half(first) && own == DT_f32);
            lies[t] = is_made ? lies[t] : is_read ? first : own;
        } else if (n->op == IR_concat) {
            bool alike = true;
            for (i64 i = 1; i < n->arg_count; i++)
                alike = alike && lies[n->args[i].i] == first;
            lies[t] = is_made ? lies[t] : alike ? first : own;
        } else if (moves(n)) {
            lies[t] = first;
        } else if (n->op == IR_gather) {
            lies[t] = is_made ? lies[t] : first;
        } else {
            lies[t] = is_made ? lies[t] : own;
        }
    }
    return lies;
}
