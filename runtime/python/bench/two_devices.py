"""One kernel set on two devices, from one thread in turn and from two threads at once; results are checked.

    python3 two_devices.py SET.tset

SET.tset has gemm_nt<bf16> for sm_90a. Device 0 stays torch's current one while kernels run on device 1. Exits 1 if a result is wrong.
"""

import sys
import threading

import torch

import tesserine

M, N, K = 512, 768, 320
ROUNDS = 200


def tensors(device, seed):
    generator = torch.Generator(device).manual_seed(seed)
    a = torch.randn(M, K, device=device, generator=generator).to(torch.bfloat16)
    b = torch.randn(N, K, device=device, generator=generator).to(torch.bfloat16)
    return a, b, torch.full((M, N), float("nan"), dtype=torch.bfloat16, device=device)


def worst(a, b, c):
    return (c.double() - a.double() @ b.double().T).abs().max().item()


def main():
    gemm = tesserine.KernelSet(sys.argv[1])["gemm_nt<bf16>"]
    assert torch.cuda.current_device() == 0
    errors = {}
    # Device 1 first, while 0 is current.
    for ordinal in (1, 0, 1):
        a, b, c = tensors(torch.device("cuda", ordinal), 10 + ordinal)
        gemm(a=a, b=b, c=c)
        assert torch.cuda.current_device() == 0
        torch.cuda.synchronize(ordinal)
        errors[f"device {ordinal} while 0 is current"] = worst(a, b, c)

    together = threading.Barrier(2)
    faults = []

    def work(ordinal, current):
        try:
            torch.cuda.set_device(current)
            stream = torch.cuda.Stream(device=ordinal)
            sets = [tensors(torch.device("cuda", ordinal), 100 * ordinal + i) for i in range(8)]
            torch.cuda.synchronize(ordinal)
            together.wait()
            for i in range(ROUNDS):
                a, b, c = sets[i % len(sets)]
                gemm(a=a, b=b, c=c, stream=stream)
            stream.synchronize()
            assert torch.cuda.current_device() == current
            errors[f"thread on device {ordinal}, current {current}"] = max(worst(*s) for s in sets)
        except Exception as error:
            faults.append(f"device {ordinal}: {error!r}")

    for currents in ((0, 0), (0, 1), (1, 0)):
        threads = [threading.Thread(target=work, args=(o, currents[o])) for o in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    a, _, c = tensors(torch.device("cuda", 0), 1)
    _, b, _ = tensors(torch.device("cuda", 1), 1)
    try:
        gemm(a=a, b=b, c=c)
        faults.append("tensors of two devices were taken")
    except tesserine.ArgumentError as error:
        print("refused, as it should be:", error)
    for name, error in errors.items():
        print(f"{name}: largest error {error:.2e}")
    # Sums of 320 products, up to about 90, in bf16.
    faults.extend(f"{name}: wrong by {error}" for name, error in errors.items() if not error < 0.6)
    print("\n".join(faults) if faults else "all results are right")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
