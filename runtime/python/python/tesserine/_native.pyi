"""Types of the native module.

A tensor is any object with ``data_ptr()``, ``shape``, ``stride()`` and ``dtype`` (torch), with
``__cuda_array_interface__``, ``__array_interface__`` or ``__dlpack__``. Its memory is used in place. Whoever launches
promises that the memory is alive, and used by no one else in a way that conflicts, until the kernel has run: with torch,
that tensors belong to the stream of the launch, or are told of it by ``record_stream``.

A number is an ``int``, ``float`` or ``bool``, or a NumPy scalar.
"""

import os
import pathlib
from collections.abc import Iterator
from typing import Any, Literal, final

__all__ = [
    "CudaDevice",
    "Kernel",
    "KernelSet",
    "Launch",
    "Op",
    "Parameter",
    "Workspace",
    "__version__",
    "cuda_devices",
    "driver_version",
    "find_sets",
]

__version__: str

@final
class KernelSet:
    """A file of compiled kernels. It holds code for the GPU: open only what you trust."""

    def __new__(cls, path: str | os.PathLike[str]) -> KernelSet:
        """Opens the set at ``path``; it must not be changed in place afterwards. Raises SetError."""

    @staticmethod
    def from_bytes(data: bytes) -> KernelSet:
        """Reads a set that is in memory. Raises SetError."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> pathlib.Path | None:
        """The file that it was opened from, or None."""

    @property
    def compiler(self) -> str:
        """The version of the compiler that wrote it."""

    @property
    def kernels(self) -> list[str]:
        """The names of all kernels, in the set's order: ``["rmsnorm<f16>", ...]``."""

    @property
    def ops(self) -> list[str]:
        """The names of all ops, in the set's order."""

    def op(self, name: str) -> Op:
        """The op of that name; spaces do not count. Raises NoKernelError."""

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name; spaces do not count. Raises NoKernelError."""

    def launch(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        /,
        *,
        stream: Any = None,
        target: str | None = None,
        **named: Any,
    ) -> Launch:
        """``set.launch(name, x=x, ...)`` is ``set.kernel(name)(x=x, ...)``."""

    def __getitem__(self, name: str, /) -> Kernel: ...
    def __contains__(self, name: str, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...

@final
class Kernel:
    """One kernel of a set, with its element types fixed."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str:
        """The file that it was compiled from, relative to the set's own source."""

    @property
    def parameters(self) -> list[Parameter]:
        """What it takes, in order."""

    @property
    def targets(self) -> list[str]:
        """The targets that there is code for: ``["sm_80", "sm_90a"]``."""

    def __call__(
        self,
        arguments: dict[str, Any] | None = None,
        /,
        *,
        stream: Any = None,
        target: str | None = None,
        **named: Any,
    ) -> Launch:
        """Checks the arguments and queues the kernel.

        Arguments go by keyword; those whose names are no identifiers (``epi.bias``), or are ``stream`` or ``target``, go
        in the dict ``arguments``. ``None`` leaves an optional argument out. All tensors lie on one CUDA device.

        stream: the address of a ``CUstream``, or an object with ``cuda_stream`` (torch), ``ptr`` (CuPy) or
            ``__cuda_stream__``. Default: torch's current stream, if torch runs on CUDA in this process, else the default
            stream.
        target: whose code runs, where it is not to be the best for the device.

        Returns before the kernel has run. Raises ArgumentError before anything was queued, and DeviceError where there
        is no device that could run it.
        """

    def check(self, arguments: dict[str, Any] | None = None, /, **named: Any) -> dict[str, int | float]:
        """Checks arguments as a call does, without a device: tensors may lie anywhere.

        Returns the extents of the kernel's dimensions and the values of its numbers. Raises ArgumentError.
        """

    def prepare(self, device: int = 0, *, target: str | None = None) -> str:
        """Loads the code for CUDA device ``device``, so that the first call need not; gives the target that it is for.

        Raises DeviceError.
        """

    def emulate(
        self,
        arguments: dict[str, Any] | None = None,
        /,
        *,
        device: str = "emulator",
        target: str | None = None,
        **named: Any,
    ) -> Launch:
        """Runs the kernel on the CPU, by executing its PTX as a GPU of some target would, and waits for it.

        Tensors lie on the CPU (NumPy's arrays, torch's tensors of ``cpu``); they are copied to the device, and what the kernel
        stores is copied back. For tests and to find mistakes: it is slow.

        device: ``"emulator:sm_80"`` and so on; ``"emulator"`` is ``"emulator:sm_90a"``.

        Raises ArgumentError; DeviceError, which names line and threads, where the kernel does something wrong.
        """

@final
class Op:
    """One op of a set: several launches with the workspace between them."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str:
        """The file that it was compiled from, relative to the set's own source."""

    @property
    def parameters(self) -> list[Parameter]:
        """What it takes, in order."""

    @property
    def launches(self) -> list[str]:
        """The names of the kernels that it launches, in order."""

    def workspace_size(self, dims: dict[str, int] | None = None, /, **named: int) -> int:
        """Bytes of workspace that a run needs, exactly: ``op.workspace_size(m=64, n=4096, splits=8)``.

        What the workspace does not depend on may be left out. Raises ArgumentError.
        """

    def workspace_for(self, arguments: dict[str, Any] | None = None, /, **named: Any) -> int:
        """Bytes of workspace that a call with these arguments needs. Raises ArgumentError."""

    def check(self, arguments: dict[str, Any] | None = None, /, **named: Any) -> dict[str, int | float]:
        """Checks arguments as a call does, without a device. Raises ArgumentError."""

    def prepare(self, device: int = 0, *, target: str | None = None) -> None:
        """Loads the code of all launches, so that the first call need not, and a captured one can."""

    def __call__(
        self,
        arguments: dict[str, Any] | None = None,
        /,
        *,
        workspace: Workspace | None = None,
        stream: Any = None,
        target: str | None = None,
        **named: Any,
    ) -> list[Launch]:
        """Checks the arguments and queues all launches, as a kernel's call does its own.

        workspace: memory for one run at a time, of at least ``workspace_size`` bytes; none if that is 0. A call allocates
            nothing and waits for nothing: once the op is prepared, it can be captured in a graph, and the workspace then
            serves no other dimensions.
        """

    def emulate(
        self,
        arguments: dict[str, Any] | None = None,
        /,
        *,
        device: str = "emulator",
        target: str | None = None,
        **named: Any,
    ) -> list[Launch]:
        """Runs all launches on the CPU, as a kernel's ``emulate`` does its own, with a workspace of their own."""

@final
class Workspace:
    """The memory that runs of ops use between their launches: one run at a time, so one for each stream."""

    def __new__(cls, memory: Any, device: int = 0) -> Workspace:
        """``memory``: so many bytes of CUDA device ``device``, or a tensor without gaps that nobody else uses."""

    @property
    def nbytes(self) -> int: ...

@final
class Parameter:
    """What a kernel takes for one argument."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Literal["tensor", "number"]: ...
    @property
    def dtype(self) -> str:
        """The type of the elements, or of the number: ``"bf16"``."""

    @property
    def shape(self) -> list[str]:
        """The extents, each a formula over the kernel's dimensions: ``["m", "2 * d"]``. Empty for numbers."""

    @property
    def access(self) -> Literal["read", "write", "read and write"] | None:
        """What the kernel does with a tensor; None for numbers."""

    @property
    def optional(self) -> bool: ...
    @property
    def default(self) -> float | None:
        """The number that is taken if none is passed."""

@final
class Launch:
    """What a call queued."""

    @property
    def target(self) -> str:
        """Whose code it was: ``"sm_90a"``."""

    @property
    def body(self) -> int:
        """Which body of the kernel, counted over all its targets."""

    @property
    def code(self) -> Literal["cubin", "ptx"]: ...
    @property
    def blocks(self) -> int:
        """0 if there was nothing to do, and nothing was queued."""

@final
class CudaDevice:
    """A CUDA device, as the driver describes it."""

    @property
    def ordinal(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def capability(self) -> tuple[int, int]: ...
    @property
    def memory(self) -> int:
        """Bytes."""

def find_sets() -> list[pathlib.Path]:
    """The files of the kernel sets in ``$TESSERINE_SETS``, ``target/sets`` and the user's data folder that open."""

def cuda_devices() -> list[CudaDevice]:
    """The devices of the driver. Raises DeviceError where there is no driver."""

def driver_version() -> tuple[int, int]:
    """The newest CUDA version that the driver serves. Raises DeviceError where there is no driver."""
