"""Launches kernels of Tesserine kernel sets on tensors of any framework, without copies.

>>> import tesserine, torch
>>> kernels = tesserine.KernelSet("target/sets/default.tset")
>>> x = torch.randn(1024, 4096, dtype=torch.bfloat16, device="cuda")
>>> weight = torch.ones(4096, dtype=torch.bfloat16, device="cuda")
>>> out = torch.empty_like(x)
>>> kernels.launch("rmsnorm<bf16>", x=x, weight=weight, out=out, eps=1e-6)  # doctest: +SKIP

Arguments go by name. Each is checked against the kernel's signature before a device is touched, and an
:class:`ArgumentError` names the one that does not fit. Kernels run on torch's current stream unless told otherwise; a
call returns as soon as its kernel is queued.
"""

from ._errors import ArgumentError, DeviceError, Error, NoKernelError, SetError
from ._native import (
    CudaDevice,
    Kernel,
    KernelSet,
    Launch,
    Op,
    Parameter,
    Workspace,
    __version__,
    cuda_devices,
    driver_version,
    find_sets,
)

__all__ = [
    "ArgumentError",
    "CudaDevice",
    "DeviceError",
    "Error",
    "Kernel",
    "KernelSet",
    "Launch",
    "NoKernelError",
    "Op",
    "Parameter",
    "SetError",
    "Workspace",
    "__version__",
    "cuda_devices",
    "driver_version",
    "find_sets",
]
