"""Export a LLaMA-style decoder block: what `make demo` optimizes.

    python examples/llama_block.py [OUT.pt2]        (needs torch >= 2.10)

Any module is exported the same way: `torch.export.export(module, example_inputs)`, then
`torch.export.save`. `run_decompositions({})` keeps composite operators and makes the program
functional; EquiForge reads the other forms as well.
"""

import io
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

HIDDEN, HEADS, KV_HEADS, FFN, TOKENS = 192, 6, 2, 512, 128


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        head = HIDDEN // HEADS
        self.norm1 = torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.norm2 = torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.q = torch.nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.k = torch.nn.Linear(HIDDEN, KV_HEADS * head, bias=False)
        self.v = torch.nn.Linear(HIDDEN, KV_HEADS * head, bias=False)
        self.o = torch.nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate = torch.nn.Linear(HIDDEN, FFN, bias=False)
        self.up = torch.nn.Linear(HIDDEN, FFN, bias=False)
        self.down = torch.nn.Linear(FFN, HIDDEN, bias=False)
        angles = torch.arange(TOKENS)[:, None] / 10000.0 ** (torch.arange(0, head, 2) / head)
        self.register_buffer("cos", torch.cat([angles.cos(), angles.cos()], -1), persistent=False)
        self.register_buffer("sin", torch.cat([angles.sin(), angles.sin()], -1), persistent=False)

    def rotate(self, x):
        left, right = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-right, left], -1) * self.sin

    def heads(self, x, n):
        return x.unflatten(-1, (n, -1)).transpose(1, 2)

    def forward(self, x):
        h = self.norm1(x)
        q = self.rotate(self.heads(self.q(h), HEADS))
        k = self.rotate(self.heads(self.k(h), KV_HEADS))
        v = self.heads(self.v(h), KV_HEADS)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).flatten(-2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def main(out):
    torch.manual_seed(0)
    block = Block().eval()
    with torch.no_grad():
        for p in block.parameters():
            if p.dim() == 2:
                p.uniform_(-math.sqrt(3 / p.shape[1]), math.sqrt(3 / p.shape[1]))
    program = torch.export.export(block, (torch.randn(1, TOKENS, HIDDEN),)).run_decompositions({})
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    blob = buffer.getvalue()
    tools = Path(__file__).resolve().parents[1] / "tools"
    if (tools / "fixtures" / "archive.py").exists():  # strip what depends on this machine
        sys.path.insert(0, str(tools))
        from fixtures import archive

        blob = archive.write_stored(archive.normalise(archive.read_entries(blob), "llama_block"))
    Path(out).write_bytes(blob)
    print(f"{out}: {len(blob)} bytes")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_suffix(".pt2"))
