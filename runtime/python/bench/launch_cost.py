"""What a launch costs from Python, beside the driver's call alone.

    python3 launch_cost.py SET.tset [LAUNCH_COST]

SET.tset has gemm_nt<bf16> for sm_90a, which takes three tensor maps. LAUNCH_COST is the Rust example of the same name, built: it is
run before and after, and its figure for the driver's call alone is the one that the others are compared with. Cases take turns in an
order that is drawn anew each round. Products are checked, that of a captured launch after its data changed. Exits 1 if one is wrong.
"""

import random
import statistics
import subprocess
import sys
import time

import torch

import tesserine

M, N, K = 128, 256, 64
BATCH, ROUNDS, PLACES = 200, 151, 97


def bare(path, kernel_set):
    """The median of the driver's call alone, in µs."""
    text = subprocess.run([path, kernel_set], capture_output=True, text=True, check=True).stdout
    print(text)
    row = next(line for line in text.splitlines() if line.startswith("bare cuLaunchKernel"))
    return float(row.split()[2])


def main():
    path = sys.argv[1]
    before = [bare(sys.argv[2], path)] if len(sys.argv) > 2 else []
    gemm = tesserine.KernelSet(path)["gemm_nt<bf16>"]
    device = torch.device("cuda", 0)
    generator = torch.Generator(device).manual_seed(1)

    def matrices(rows, columns):
        values = torch.randn(PLACES, rows, columns, device=device, generator=generator)
        return list(values.to(torch.bfloat16))

    left, right = matrices(M, K), matrices(N, K)
    out = [torch.zeros(M, N, dtype=torch.bfloat16, device=device) for _ in range(PLACES)]
    gemm(a=left[0], b=right[0], c=out[0])
    torch.cuda.synchronize()

    graph = torch.cuda.CUDAGraph()
    replayed = torch.zeros_like(out[0])
    with torch.cuda.graph(graph):
        gemm(a=left[0], b=right[0], c=replayed)

    place = 0

    def known():
        for _ in range(BATCH):
            gemm(a=left[0], b=right[0], c=out[0])

    def known_in_a_dict():
        arguments = {"a": left[0], "b": right[0], "c": out[0]}
        for _ in range(BATCH):
            gemm(arguments)

    def new():
        nonlocal place
        for _ in range(BATCH):
            place = (place + 1) % PLACES
            gemm(a=left[place], b=right[place], c=out[place])

    def on_a_stream():
        stream = torch.cuda.current_stream().cuda_stream
        for _ in range(BATCH):
            gemm(a=left[0], b=right[0], c=out[0], stream=stream)

    def replay():
        for _ in range(BATCH):
            graph.replay()

    def of_torch():
        a, b, c = left[0], right[0].t(), out[0]
        for _ in range(BATCH):
            torch.mm(a, b, out=c)

    cases = {
        "known tensors": known,
        "known, in a dict": known_in_a_dict,
        "known, stream named": on_a_stream,
        "new tensors": new,
        "replay of a graph": replay,
        "torch.mm": of_torch,
    }
    times = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name in random.sample(list(cases), len(cases)):
            torch.cuda.synchronize()
            start = time.perf_counter()
            cases[name]()
            times[name].append((time.perf_counter() - start) / BATCH * 1e6)
    torch.cuda.synchronize()
    if len(sys.argv) > 2:
        before.append(bare(sys.argv[2], path))
    base = statistics.mean(before) if before else None
    print(f"{'us a launch':<22}{'median':>10}{'10 %':>10}{'90 %':>10}{'above bare':>12}")
    for name, list_of_times in times.items():
        median = statistics.median(list_of_times)
        tenths = statistics.quantiles(list_of_times, n=10)
        above = "" if base is None else f"{median - base:+12.3f}"
        print(f"{name:<22}{median:>10.3f}{tenths[0]:>10.3f}{tenths[-1]:>10.3f}{above}")

    def worst(result, a, b):
        return (result.double() - a.double() @ b.double().T).abs().max().item()

    errors = [worst(out[i], left[i], right[i]) for i in (0, 1, PLACES - 1)]
    left[0].copy_(torch.randn(M, K, device=device, generator=generator))
    right[0].copy_(torch.randn(N, K, device=device, generator=generator))
    replayed.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    errors.append(worst(replayed, left[0], right[0]))
    print("largest errors, the last of the replay after its data changed:", ", ".join(f"{e:.2e}" for e in errors))
    # Sums of 64 products, up to about 40, in bf16.
    right_so_far = all(e < 0.3 for e in errors)
    print("all products are right" if right_so_far else "a product is WRONG")
    return 0 if right_so_far else 1


if __name__ == "__main__":
    sys.exit(main())
