"""Operators under FlashInfer's names, with its order of arguments, defaults and shapes, on Tesserine's kernels.

>>> from tesserine import flashinfer
>>> y = flashinfer.rmsnorm(x, weight)  # doctest: +SKIP

Tensors are torch's or of any framework that :class:`tesserine.Kernel` takes; results are of the framework of the inputs, and
launches go to torch's current stream. What has no kernel raises ``NotImplementedError``, a wrong argument
:class:`tesserine.ArgumentError`, which is a ``ValueError``.

The kernels are those of the package; ``$TESSERINE_SET`` names others. With ``$TESS_DEVICE=emulator`` tensors of the CPU are
taken, and kernels are executed there: for tests.
"""

from . import activation, norm
from .activation import gelu_tanh_and_mul, silu_and_mul
from .norm import fused_add_rmsnorm, layernorm, rmsnorm

__all__ = [
    "activation",
    "fused_add_rmsnorm",
    "gelu_tanh_and_mul",
    "layernorm",
    "norm",
    "rmsnorm",
    "silu_and_mul",
]
