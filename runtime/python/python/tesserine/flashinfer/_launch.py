"""What all operators share: the set that they launch from, names of types, outputs in the caller's framework, errors.

The kernels are those of ``$TESSERINE_SET``, else of the set in the package. Tensors lie on a CUDA device; where
``$TESS_DEVICE`` names an emulated one (``emulator:sm_90a``), they lie on the CPU and kernels are executed there.
"""

from __future__ import annotations

import functools
import os
import pathlib
import sys
from typing import Any

from .._errors import ArgumentError, NoKernelError, SetError
from .._native import KernelSet

PACKAGED = pathlib.Path(__file__).resolve().parent.parent / "ops.tset"

# Types by the names that frameworks give them.
TYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float4_e2m1fn_x2": "e2m1",
    "uint8": "u8",
    "int32": "i32",
    "int64": "i64",
    "bool": "bool",
}


@functools.lru_cache(None)
def kernels() -> KernelSet:
    """The set that operators launch from."""
    named = os.environ.get("TESSERINE_SET")
    if named:
        return KernelSet(named)
    if not PACKAGED.is_file():
        raise SetError(
            "this package was built without kernels: name a set in $TESSERINE_SET, "
            "such as `tess build kernels-dsl/ops.toml` writes"
        )
    return KernelSet(PACKAGED)


@functools.lru_cache(None)
def _emulated() -> str | None:
    device = os.environ.get("TESS_DEVICE", "")
    return device if device.startswith("emulator") else None


def type_name(tensor: Any) -> str:
    """The element type as kernels name it: ``"bf16"``."""
    return _type_name(tensor.dtype)


@functools.lru_cache(None)
def _type_name(dtype: Any) -> str:
    name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    return TYPES.get(name, name)


def empty(like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """A tensor of unspecified contents where ``like`` lies. ``dtype``: as frameworks name it, ``"uint8"``."""
    if hasattr(like, "new_empty"):
        kind = like.dtype if dtype is None else getattr(sys.modules["torch"], dtype)
        return like.new_empty(shape, dtype=kind)
    library = like.__array_namespace__()
    return library.empty(shape, dtype=like.dtype if dtype is None else getattr(library, dtype))


def argument(function: str, name: str, reason: str) -> ArgumentError:
    """An error about an argument of ``function``."""
    return ArgumentError(f"`{function}`: `{name}` {reason}", function, name)


def rank(function: str, name: str, tensor: Any, *wanted: int) -> None:
    """Raises unless the tensor has one of these numbers of dimensions."""
    if len(tensor.shape) not in wanted:
        wants = " or ".join(str(r) for r in wanted)
        raise argument(function, name, f"has {len(tensor.shape)} dimensions, and {wants} are wanted")


def matrix(function: str, name: str, tensor: Any) -> Any:
    """The same memory with all but the last dimension as one."""
    if len(tensor.shape) == 2:
        return tensor
    strides = tensor.stride() if hasattr(tensor, "stride") else tensor.strides
    extents = tensor.shape
    for outer in range(len(extents) - 2):
        if extents[outer] > 1 and strides[outer] != strides[outer + 1] * extents[outer + 1]:
            raise argument(function, name, "has rows at several strides, and one is wanted")
    return tensor.reshape(-1, extents[-1])


def launch(function: str, kernel: str, called: dict[str, str], /, **values: Any) -> None:
    """Launches ``kernel`` for the operator ``function``, on arguments by the kernel's names; None leaves one out.

    called: what a parameter is called in the operator, where it is not the kernel's name.
    """
    try:
        found = kernels().kernel(kernel)
    except NoKernelError as error:
        base = kernel.partition("<")[0]
        held = [k for k in kernels().kernels if k.partition("<")[0] == base]
        raise NotImplementedError(
            f"`{function}` on these arguments is the kernel `{kernel}`, which the kernel set does not have; "
            f"of `{base}` it has {', '.join(held) or 'none'}"
        ) from error
    device = _emulated()
    try:
        if device is None:
            found(values)
        else:
            found.emulate(values, device=device)
    except ArgumentError as error:
        name = called.get(error.argument, error.argument)
        message = str(error).replace(f"`{found.name}`", f"`{function}`")
        for parameter, own in called.items():
            message = message.replace(f"`{parameter}`", f"`{own}`")
        raise ArgumentError(message, function, name) from error
