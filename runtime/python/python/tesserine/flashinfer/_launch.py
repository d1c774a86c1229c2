"""What all operators share: the set that they launch from, names of types, outputs in the caller's framework, errors.

The kernels are those of ``$TESSERINE_SET``, else of the set in the package. Tensors lie on a CUDA device; where
``$TESS_DEVICE`` names an emulated one (``emulator:sm_90a``), they lie on the CPU and kernels are executed there.
"""

from __future__ import annotations

import functools
import os
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

from .._errors import ArgumentError, NoKernelError, SetError
from .._native import Kernel, KernelSet, Op, Workspace

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
    return dtype_name(tensor.dtype)


@functools.lru_cache(None)
def dtype_name(dtype: Any) -> str:
    """The type as kernels name it."""
    name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    return TYPES.get(name, name)


def empty(like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """A tensor of unspecified contents where ``like`` lies. ``dtype``: as frameworks name it, ``"uint8"``."""
    if hasattr(like, "new_empty"):
        kind = like.dtype if dtype is None else getattr(sys.modules["torch"], dtype)
        return like.new_empty(shape, dtype=kind)
    library = like.__array_namespace__()
    return library.empty(shape, dtype=like.dtype if dtype is None else getattr(library, dtype))


def bits(tensor: Any, dtype: str) -> Any:
    """The same memory with elements of ``dtype``."""
    return tensor.view(getattr(sys.modules["torch"], dtype) if hasattr(tensor, "new_empty") else dtype)


def none(like: Any, dtype: str) -> Any:
    """A tensor without elements, for a parameter of no request."""
    key = (type(like), str(getattr(like, "device", "cpu")), dtype)
    if key not in _NONE:
        _NONE[key] = empty(like, (0,), dtype)
    return _NONE[key]


_NONE: dict[tuple[type, str, str], Any] = {}


def cast(tensor: Any, dtype: str) -> Any:
    """The tensor with elements of ``dtype``; itself if it has them."""
    if hasattr(tensor, "new_empty"):
        return tensor.to(getattr(sys.modules["torch"], dtype))
    return tensor.astype(dtype, copy=False)


def filled(like: Any, shape: tuple[int, ...], value: float, dtype: str) -> Any:
    """A tensor of one value where ``like`` lies."""
    made = empty(like, shape, dtype)
    if hasattr(made, "fill_"):
        return made.fill_(value)
    made.fill(value)
    return made


def listed(like: Any, values: Iterable[int], dtype: str) -> Any:
    """A tensor of these values where ``like`` lies."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(like, "new_empty"):
        return torch.tensor(list(values), dtype=getattr(torch, dtype), device=like.device)
    library = like.__array_namespace__()
    return library.asarray(list(values), dtype=getattr(library, dtype))


def scale(like: Any, value: Any) -> Any:
    """A number, or a tensor with one, as kernels take it: ``[1]`` in f32. Numbers become tensors once a device."""
    if not isinstance(value, (int, float)):
        return cast(value, "float32").reshape(1)
    key = (type(like), str(getattr(like, "device", "cpu")), float(value))
    if key not in _SCALES:
        _SCALES[key] = filled(like, (1,), value, "float32")
    return _SCALES[key]


_SCALES: dict[tuple[type, str, float], Any] = {}


def argument(function: str, name: str, reason: str) -> ArgumentError:
    """An error about an argument of ``function``."""
    return ArgumentError(f"`{function}`: `{name}` {reason}", function, name)


def backend(function: str, value: str) -> None:
    """Raises for a backend that FlashInfer does not know either; which one it is makes no difference here."""
    if value not in ("auto", "cuda", "cute-dsl", "cutile"):
        raise argument(function, "backend", f"is {value!r}, which is none")


def rank(function: str, name: str, tensor: Any, *wanted: int) -> None:
    """Raises unless the tensor has one of these numbers of dimensions."""
    if len(tensor.shape) not in wanted:
        wants = " or ".join(str(r) for r in wanted)
        raise argument(function, name, f"has {len(tensor.shape)} dimensions, and {wants} are wanted")


def each(function: str, name: str, tensor: Any, count: int) -> None:
    """Raises unless the tensor has one element a row."""
    if tuple(tensor.shape) != (count,):
        raise argument(function, name, f"is {list(tensor.shape)}, and one element for each of {count} rows is wanted")


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


@functools.lru_cache(None)
def _found(function: str, name: str) -> Kernel | Op:
    """The kernel or op of that name."""
    try:
        return kernels().kernel(name)
    except NoKernelError:
        pass
    try:
        return kernels().op(name)
    except NoKernelError as error:
        base = name.partition("<")[0]
        held = [k for k in kernels().kernels + kernels().ops if k.partition("<")[0] == base]
        raise NotImplementedError(
            f"`{function}` on these arguments is the kernel `{name}`, which the kernel set does not have; "
            f"of `{base}` it has {', '.join(held) or 'none'}"
        ) from error


def launch(function: str, kernel: str, called: dict[str, str], /, **values: Any) -> None:
    """Launches ``kernel`` for the operator ``function``, on arguments by the kernel's names; None leaves one out.

    called: what a parameter is called in the operator, where it is not the kernel's name.
    """
    found = _found(function, kernel)
    device = _emulated()
    try:
        if device is not None:
            found.emulate(values, device=device)
        elif isinstance(found, Op):
            found(values, workspace=_workspace(found, values))
        else:
            found(values)
    except ArgumentError as error:
        name = called.get(error.argument, error.argument)
        message = str(error).replace(f"`{found.name}`", f"`{function}`")
        for parameter, own in called.items():
            message = message.replace(f"`{parameter}`", f"`{own}`")
        raise ArgumentError(message, function, name) from error


# Workspaces by op, device and stream: runs on one stream follow each other.
_WORKSPACES: dict[tuple[str, Any, Any], Workspace] = {}


def _workspace(op: Op, values: dict[str, Any]) -> Workspace | None:
    """Memory for a run of ``op`` on torch's current stream, kept from run to run; a captured run has its own."""
    size = op.workspace_for(values)
    if size == 0:
        return None
    torch = sys.modules.get("torch")
    if torch is None:
        raise NotImplementedError(f"`{op.name}` needs a workspace, which is allocated by torch only")
    tensor = next(value for value in values.values() if hasattr(value, "new_empty"))

    def allocate(size: int) -> Workspace:
        # A workspace begins at a multiple of 256 bytes, which torch's allocator does not promise.
        memory = tensor.new_empty(size + 256, dtype=torch.uint8)
        return Workspace(memory[-memory.data_ptr() % 256 :][:size])

    if torch.cuda.is_current_stream_capturing():
        # Of the graph's own pool, which lives as long as the graph.
        return allocate(size)
    key = (op.name, tensor.device, torch.cuda.current_stream(tensor.device).cuda_stream)
    held = _WORKSPACES.get(key)
    if held is None or held.nbytes < size:
        held = _WORKSPACES[key] = allocate(size)
    return held
