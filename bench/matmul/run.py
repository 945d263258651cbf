"""Matrix products against eager PyTorch, interleaved, on the same threads.

    python bench/matmul/run.py [--threads 2] [--cc gcc] [case ...]

A case is dtype:form:batch:M:N:K with form nk (weights [N, K]), kn ([K, N]), each with + for
constant weights (packed beforehand) or - for weights that may change; with batch > 1 only -. Times
are the least of the rounds, CPU time with one thread and wall time with more; `median` is the median
of the rounds' ratios. `fma` is the share of the rate of a large torch product, `dram` the bytes of
all operands as a share of the measured read rate (caches can make it more than 1).
"""
import argparse
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
import torch  # noqa: E402

CASES = [f"f32:nk{c}:1:{m}:4096:4096" for c in "+-" for m in (1, 4, 16, 128, 1024)] + [
    "f32:kn+:1:1:4096:4096", "f32:kn-:1:1:4096:4096", "f32:kn-:1:16:4096:4096",
    "f32:kn-:1:128:4096:4096",
    "bf16:nk+:1:1:4096:4096", "bf16:nk+:1:16:4096:4096", "bf16:nk+:1:128:4096:4096",
    "f16:nk+:1:1:4096:4096", "f16:nk+:1:16:4096:4096",
    "f64:nk+:1:1:4096:4096", "f64:nk+:1:128:2048:2048",
    "f32:nk-:32:512:512:64", "f32:kn-:32:512:64:512", "f32:nk-:32:1:1024:128",
    "f32:kn-:32:1:128:1024",
]
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16,
          "f16": torch.float16}


ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOCK = time.perf_counter


def timed(run):
    start = CLOCK()
    run()
    return CLOCK() - start


def build(folder):
    """Compiles matmul.c and the modules it stands on to a shared library."""
    library = f"{folder}/libbench_matmul.so"
    sources = [ROOT / "bench/matmul/matmul.c"]
    for module in ("base", "ir", "kernel", "codegen"):
        sources += sorted((ROOT / "src" / module).glob("*.c"))
    subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared",
                    "-fno-strict-aliasing", f"-I{ROOT}/include", f"-I{ROOT}/src", "-o", library,
                    *map(str, sources), "-lm", "-ldl", "-lpthread", "-lxxhash", "-ljansson"],
                   check=True)
    return library


def widest(cc):
    """Bytes of the widest vectors that the compiler uses on this machine."""
    macros = subprocess.run([cc, "-march=native", "-dM", "-E", "-x", "c", "/dev/null"], check=True,
                            capture_output=True, text=True).stdout
    return 64 if "__AVX512F__" in macros else 32 if "__AVX__" in macros else 16


def rates():
    """Measured FMA rate (GFLOP/s) of a large torch product and read rate (GB/s) of a sum."""
    a = torch.rand(2048, 2048)
    flops = max(2 * 2048**3 / timed(lambda: a @ a) for _ in range(5)) / 1e9
    x = torch.rand(64 << 20)
    gbs = max(x.numel() * 4 / timed(lambda: x.sum()) for _ in range(7)) / 1e9
    return flops, gbs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", help="built before; by default it is built now")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vector-bytes", type=int, help="by default the widest here")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("cases", nargs="*", default=CASES)
    o = parser.parse_args()
    if not o.vector_bytes:
        o.vector_bytes = widest(o.cc)
    torch.set_num_threads(o.threads)
    if o.threads == 1:
        global CLOCK
        CLOCK = time.thread_time  # other jobs on the machine do not enter
    lib = ctypes.CDLL(o.library or build(tempfile.mkdtemp()))
    lib.bm_new.restype = ctypes.c_void_p
    i64, text = ctypes.c_int64, ctypes.c_char_p
    lib.bm_new.argtypes = [i64, i64, i64, i64, text, ctypes.c_int, ctypes.c_int, i64, ctypes.c_int,
                           text, text]
    lib.bm_bind.argtypes = [ctypes.c_void_p] * 4
    lib.bm_run.argtypes = [ctypes.c_void_p]
    flops_rate, dram_rate = rates()
    print(f"torch {torch.__version__}, {o.threads} threads, {o.cc}, {o.vector_bytes}-byte vectors; "
          f"torch product {flops_rate:.0f} GFLOP/s, read {dram_rate:.1f} GB/s")
    print(f"{'case':30} {'torch ms':>9} {'ours ms':>9} {'torch/ours':>10} {'median':>7} "
          f"{'GFLOP/s':>8} {'fma':>5} {'dram':>5}  error")
    for case in o.cases:
        name, form, batch, m, n, k = case.split(":")
        batch, m, n, k = int(batch), int(m), int(n), int(k)
        t = DTYPES[name]
        k_first, constant = form[:2] == "kn", form[2] == "+"
        shape = (k, n) if k_first else (n, k)
        x = torch.randn(batch, m, k).to(t)
        w = (torch.randn(batch, *shape) / k**0.5).to(t)
        y = torch.full((batch, m, n), float("nan"), dtype=t)
        folder = tempfile.mkdtemp()
        b = lib.bm_new(batch, m, n, k, name.encode(), k_first, constant, o.vector_bytes,
                       o.threads, o.cc.encode(), folder.encode())
        if not b:
            sys.exit(f"{case}: not built")
        lib.bm_bind(b, x.data_ptr(), w.data_ptr(), y.data_ptr())
        if batch == 1:
            x2, w2 = x[0], w[0]
            eager = (lambda: x2 @ w2) if k_first else (lambda: torch.nn.functional.linear(x2, w2))
        else:
            eager = (lambda: torch.bmm(x, w)) if k_first else (
                lambda: torch.bmm(x, w.transpose(1, 2)))
        theirs, ours = [], []
        want = eager()
        lib.bm_run(b)
        for _ in range(o.rounds):
            theirs.append(timed(eager))
            time.sleep(0.003)
            ours.append(timed(lambda: lib.bm_run(b)))
            time.sleep(0.003)
        want = x.double() @ (w.double() if k_first else w.double().transpose(1, 2))
        error = ((y.double() - want).norm() / want.norm()).item()
        ratio = statistics.median(a / c for a, c in zip(theirs, ours))
        a, c = min(theirs), min(ours)
        flops = 2 * batch * m * n * k
        moved = (x.numel() + w.numel() + y.numel()) * x.element_size()
        print(f"{case:30} {a * 1e3:9.3f} {c * 1e3:9.3f} {a / c:10.2f} {ratio:7.2f} "
              f"{flops / c / 1e9:8.1f} {flops / c / 1e9 / flops_rate:5.2f} "
              f"{moved / c / 1e9 / dram_rate:5.2f}  {error:.1e}", flush=True)


if __name__ == "__main__":
    main()
