"""What tests of operators share: the emulated device, and comparison with references in f64."""

import os
import unittest

# Before an operator asks for it.
os.environ.setdefault("TESS_DEVICE", "emulator:sm_90a")

try:
    import numpy
except ImportError:
    numpy = None


def _missing():
    """Why operators cannot be tested here, if they cannot. A wheel without kernels is a fault where they are demanded."""
    if numpy is None:
        return "no NumPy"
    from tesserine.flashinfer import _launch

    if os.environ.get("TESSERINE_SET") or _launch.PACKAGED.is_file() or os.environ.get("TESSERINE_KERNELS_DEMANDED"):
        return None
    return "the package has no kernels"


_REASON = _missing()
needs_kernels = unittest.skipIf(_REASON is not None, _REASON)


def close(got, wanted, relative=6e-4, absolute=1e-6):
    """Whether f16 results are what f64 gives, to one rounding and what f32 loses before it."""
    got = numpy.asarray(got).astype("f8")
    if got.shape != wanted.shape:
        raise AssertionError(f"shape {got.shape}, and {wanted.shape} is right")
    excess = abs(got - wanted) - (relative * abs(wanted) + absolute)
    worst = numpy.unravel_index(numpy.nanargmax(excess), excess.shape)
    if numpy.isnan(got).any() or excess[worst] > 0:
        raise AssertionError(f"element {worst}: {got[worst]}, and {wanted[worst]} is right")


def e4m3(codes):
    """What bytes stand for."""
    codes = codes.astype("i4")
    exponent, mantissa = codes >> 3 & 15, codes & 7
    value = numpy.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    return numpy.where(codes & 128, -value, value)


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def e2m1(codes):
    """What halves of bytes stand for, the low one first."""
    pairs = numpy.stack([codes & 15, codes >> 4], axis=-1)
    return numpy.array(E2M1)[pairs].reshape(codes.shape[0], -1)
