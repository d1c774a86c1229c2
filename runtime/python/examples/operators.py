"""A feed-forward block's elementwise part with `tesserine.flashinfer`: norm, gate, norm.

`python operators.py` takes torch's tensors on a GPU. `TESS_DEVICE=emulator python operators.py` takes NumPy's arrays and
executes the kernels on the CPU.
"""

import os

from tesserine import flashinfer

TOKENS, HIDDEN = 4, 256


def inputs():
    """Three tensors of f16: of torch on a GPU, or of NumPy where the device is emulated."""
    shapes = [(TOKENS, HIDDEN), (TOKENS, 2 * HIDDEN), (HIDDEN,)]
    if os.environ.get("TESS_DEVICE", "").startswith("emulator"):
        import numpy

        random = numpy.random.default_rng(0)
        return [random.normal(size=shape).astype("float16") for shape in shapes]
    import torch

    return [torch.randn(shape, dtype=torch.float16, device="cuda") for shape in shapes]


residual, projected, weight = inputs()
gated = flashinfer.silu_and_mul(projected)
flashinfer.fused_add_rmsnorm(gated, residual, weight, eps=1e-5)
print("residual", residual[0, :4])
print("normed  ", gated[0, :4])
