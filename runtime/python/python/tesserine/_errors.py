"""What goes wrong, as exceptions. All are ``Error``; each is also what Python itself would raise."""


class Error(Exception):
    """Anything that this package refuses."""

    __module__ = "tesserine"


class SetError(Error, ValueError):
    """A kernel set cannot be opened: it is missing, damaged, cut short, or of a newer format."""

    __module__ = "tesserine"


class NoKernelError(Error, LookupError):
    """A kernel set has no kernel of that name."""

    __module__ = "tesserine"


class ArgumentError(Error, ValueError):
    """An argument is missing, unknown, or not what the kernel takes.

    ``kernel`` is the kernel's name. ``argument`` is the name of the argument at fault, or None where several together are.
    """

    __module__ = "tesserine"

    def __init__(
        self, message: str, kernel: str | None = None, argument: str | None = None
    ) -> None:
        super().__init__(message)
        self.kernel = kernel
        self.argument = argument


class DeviceError(Error, RuntimeError):
    """There is no driver or no such device, the driver is too old for the code, or one of its calls failed."""

    __module__ = "tesserine"
