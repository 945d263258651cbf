"""The workloads as torch modules: seven tensor programs, three attentions and a few extra rows.

A row is name:batch. Weights are stored [out, in] as nn.Linear stores them. Inputs are uniform with
unit variance, weights uniform with deviation 1/sqrt(fan in), so that every output has order one.
FLOPs and bytes (f32) are those of the best known algorithm: weights, inputs and outputs once each,
masked positions not at all.

    rmsnorm_gemm    rms(X) W                          d = n = 4096
    rmsnorm_mlp     (rms(X) Wu) * (rms(X) Wg)         d = n = 4096
    gated_mlp       silu(X Wg) * (X Wu)               d = n = 4096
    rmsnorm_swiglu  silu(rms(X) Wg) * (rms(X) Wu)     d = 4096, n = 11008
    layernorm_gemm  LN(X; g, b) W + c                 d = 768, n = 3072
    lora            X W + 2 (X A) B                   d = n = 4096, r = 16
    ngpt            norm(X + a * (norm(H) - X))       d = 4096, norm(x) = x / |x|
    mha_decode      one query, the whole cache        32 heads, d = 128, T = 2048
    gqa_decode      as above, 8 heads of keys         32 heads, d = 128, T = 4096
    mha_prefill     causal                            8 heads, d = 128, S = T = 512
    extra: layernorm_gemm_large (d = n = 4096), lora_small (d = 256, n = 4096),
           rmsnorm_ffn (rmsnorm_swiglu, a projection back and the residual)
"""
import torch
import torch.nn.functional as F
from torch import nn


def uniform(generator, *shape, deviation=1.0):
    return (torch.rand(shape, generator=generator) * 2 - 1) * (3**0.5 * deviation)


class Program(nn.Module):
    """A workload at one batch. `make` draws the parameters; `inputs` is {name of argument: shape};
    `flops` and `bytes` as above."""

    def __init__(self, batch, generator, **sizes):
        super().__init__()
        self.generator = generator
        self.make(batch, **sizes)
        del self.generator

    def weight(self, out, inner):
        return nn.Parameter(uniform(self.generator, out, inner, deviation=inner**-0.5))

    def vector(self, size, mean, spread):
        return nn.Parameter(mean + uniform(self.generator, size, deviation=spread / 3**0.5))

    def size(self, batch, d, n, flops):
        """FLOPs and bytes of a program that maps [batch, d] to [batch, n]."""
        self.inputs = {"x": (batch, d)}
        self.flops = flops
        count = sum(p.numel() for p in self.parameters()) + batch * (d + n)
        self.bytes = 4 * count

    def draw(self, seed):
        """Inputs by name."""
        generator = torch.Generator().manual_seed(seed)
        return {name: uniform(generator, *shape) for name, shape in self.inputs.items()}


def rms(x):
    return F.rms_norm(x, x.shape[-1:], eps=1e-5)


class RmsnormGemm(Program):
    def make(self, batch, d, n):
        self.w = self.weight(n, d)
        self.size(batch, d, n, 2 * batch * d * n)

    def forward(self, x):
        return F.linear(rms(x), self.w)


class Dual(Program):
    def make(self, batch, d, n):
        self.wg, self.wu = self.weight(n, d), self.weight(n, d)
        self.size(batch, d, n, 4 * batch * d * n)


class RmsnormMlp(Dual):
    def forward(self, x):
        y = rms(x)
        return F.linear(y, self.wu) * F.linear(y, self.wg)


class GatedMlp(Dual):
    def forward(self, x):
        return F.silu(F.linear(x, self.wg)) * F.linear(x, self.wu)


class RmsnormSwiglu(Dual):
    def forward(self, x):
        y = rms(x)
        return F.silu(F.linear(y, self.wg)) * F.linear(y, self.wu)


class RmsnormFfn(Dual):
    def make(self, batch, d, n):
        super().make(batch, d, n)
        self.wd = self.weight(d, n)
        self.size(batch, d, d, 6 * batch * d * n)

    def forward(self, x):
        y = rms(x)
        return x + F.linear(F.silu(F.linear(y, self.wg)) * F.linear(y, self.wu), self.wd)


class LayernormGemm(Program):
    def make(self, batch, d, n):
        self.g, self.b = self.vector(d, 1, 0.1), self.vector(d, 0, 0.1)
        self.w, self.c = self.weight(n, d), self.vector(n, 0, 0.1)
        self.size(batch, d, n, 2 * batch * d * n)

    def forward(self, x):
        y = F.layer_norm(x, x.shape[-1:], self.g, self.b, 1e-12)
        return F.linear(y, self.w, self.c)


class Lora(Program):
    def make(self, batch, d, n, r):
        self.w, self.a, self.b = self.weight(n, d), self.weight(r, d), self.weight(n, r)
        self.size(batch, d, n, 2 * batch * (d * n + d * r + r * n))

    def forward(self, x):
        return F.linear(x, self.w) + 2 * F.linear(F.linear(x, self.a), self.b)


class Ngpt(Program):
    def make(self, batch, d):
        self.alpha = self.vector(d, 0.5, 0.1)
        self.size(batch, d, d, 10 * batch * d)
        self.inputs = {"x": (batch, d), "h": (batch, d)}
        self.bytes += 4 * batch * d

    def forward(self, x, h):
        h = h / torch.linalg.vector_norm(h, dim=-1, keepdim=True)
        y = x + self.alpha * (h - x)
        return y / torch.linalg.vector_norm(y, dim=-1, keepdim=True)


class Attention(Program):
    """Written with explicit products; `Sdpa` is the same by F.scaled_dot_product_attention."""

    def make(self, batch, heads, key_heads, queries, keys, d):
        self.groups, self.causal = heads // key_heads, queries > 1
        assert self.groups == 1 or queries == 1
        self.inputs = {"q": (batch, heads, queries, d), "k": (batch, key_heads, keys, d),
                       "v": (batch, key_heads, keys, d)}
        seen = queries * (queries + 1) // 2 if self.causal else queries * keys
        self.flops = 4 * batch * heads * seen * d
        self.bytes = 8 * batch * (heads * queries + key_heads * keys) * d

    def forward(self, q, k, v):
        shape = q.shape
        if self.groups > 1:  # the queries of a group are rows of one product
            q = q.reshape(shape[0], k.shape[1], self.groups, shape[3])
        scores = q @ k.transpose(-1, -2) * shape[3] ** -0.5
        if self.causal:
            i = torch.arange(shape[2])
            scores = scores.masked_fill(i[None, :] > i[:, None], float("-inf"))
        return (torch.softmax(scores, -1) @ v).reshape(shape)


class Sdpa(Attention):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal,
                                              enable_gqa=self.groups > 1)


TENSOR = {
    "rmsnorm_gemm": (RmsnormGemm, dict(d=4096, n=4096)),
    "rmsnorm_mlp": (RmsnormMlp, dict(d=4096, n=4096)),
    "gated_mlp": (GatedMlp, dict(d=4096, n=4096)),
    "rmsnorm_swiglu": (RmsnormSwiglu, dict(d=4096, n=11008)),
    "layernorm_gemm": (LayernormGemm, dict(d=768, n=3072)),
    "lora": (Lora, dict(d=4096, n=4096, r=16)),
    "ngpt": (Ngpt, dict(d=4096)),
}
ATTENTION = {
    "mha_decode": (Attention, dict(heads=32, key_heads=32, queries=1, keys=2048, d=128)),
    "gqa_decode": (Attention, dict(heads=32, key_heads=8, queries=1, keys=4096, d=128)),
    "mha_prefill": (Attention, dict(heads=8, key_heads=8, queries=512, keys=512, d=128)),
}
EXTRA = {
    "layernorm_gemm_large": (LayernormGemm, dict(d=4096, n=4096)),
    "lora_small": (Lora, dict(d=256, n=4096, r=16)),
    "rmsnorm_ffn": (RmsnormFfn, dict(d=4096, n=11008)),
}


def build(row):
    """The forms of a row, {name: module}; the first is the one that is optimized."""
    name, batch = row.split(":")
    kind, sizes = (TENSOR | ATTENTION | EXTRA)[name]

    def make(kind):
        return kind(int(batch), torch.Generator().manual_seed(1), **sizes).eval()

    if kind is Attention:
        return {"math": make(Attention), "sdpa": make(Sdpa)}
    return {"": make(kind)}
