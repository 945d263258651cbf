/* autocast: regions that the training form leaves to the dispatcher.
 *
 * Inside an enabled region operands are declared f32 and results half, and no node says where the
 * casts are. The dispatcher's policy does: some operators cast their operands to the region's
 * dtype, some to f32, the others run on what comes. The casts are inserted here; the dtype that the
 * file declares for each result then tells whether the policy was the right one (a mismatch makes
 * the call a boundary, never a relabelled f32 result). The lists are interface facts of PyTorch. */
#include "frontend/lower.h"

static const char *const narrow[] = {
    "linear",
    "matmul",
    "mm",
    "bmm",
    "mv",
    "addmm",
    "addbmm",
    "baddbmm",
    "addmv",
    "addr",
    "einsum",
    "linalg_multi_dot",
    "linalg_vecdot",
    "scaled_dot_product_attention",
    "bilinear",
};

static const char *const wide[] = {
    "prod",
    "cdist",
    "mse_loss",
    "nll_loss",
    "hinge_embedding_loss",
    "smooth_l1_loss",
    "cross_entropy_loss",
    "l1_loss",
    "huber_loss",
    "triplet_margin_loss",
    "kl_div",
    /* with CUDA only: */
    "exp",
    "expm1",
    "log",
    "log2",
    "log1p",
    "pow",
    "rsqrt",
    "reciprocal",
    "softplus",
    "layer_norm",
    "group_norm",
    "linalg_vector_norm",
    "linalg_norm",
    "norm",
    "cosine_similarity",
    "cumprod",
    "cumsum",
    "dist",
    "logsumexp",
    "softmax",
    "log_softmax",
    "sum",
    "rms_norm",
};
enum { WIDE_ON_CPU = 11 };

static bool has(const char *const *names, i64 n, const char *target)
{
    if (strncmp(target, "aten.", 5) != 0)
        return false;
    const char *dot = strchr(target + 5, '.');
    i64 length = dot ? dot - target - 5 : (i64)strlen(target + 5);
    for (i64 i = 0; i < n; i++)
        if (!strncmp(names[i], target + 5, (size_t)length) && !names[i][length])
            return true;
    return false;
}

u8 fe_autocast_dtype(const fe_autocast *region, const char *target)
{
    if (!region->is_on)
        return DT_NONE;
    if (has(narrow, COUNT_OF(narrow), target))
        return region->dtype;
    if (has(wide, region->is_cuda ? COUNT_OF(wide) : WIDE_ON_CPU, target))
        return DT_f32;
    return DT_NONE;
}
