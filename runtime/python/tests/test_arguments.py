"""Arguments: what is read from tensors of all kinds, and what is refused, all without a device."""

import ctypes
import math
import os
import subprocess
import sys
import unittest

import numpy
import tesserine

import kernel_set


class Torch:
    """Describes memory as a torch tensor does."""

    def __init__(self, dtype, *shape, stride=None, data_ptr=1 << 20, device="cuda:0"):
        self.dtype, self.shape, self._stride, self._data_ptr = "torch." + dtype, shape, stride, data_ptr
        self.device = Device(device)

    def data_ptr(self):
        return self._data_ptr

    def stride(self):
        if self._stride is not None:
            return self._stride
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))


class Device:
    def __init__(self, name):
        self.type, _, index = name.partition(":")
        self.index = int(index) if index else None


class Cuda:
    """Describes memory as CuPy and Numba do."""

    def __init__(self, typestr, shape, strides=None, pointer=1 << 30):
        self.__cuda_array_interface__ = {
            "typestr": typestr,
            "shape": shape,
            "strides": strides,
            "data": (pointer, False),
            "version": 3,
        }


class DlPackOnly:
    """An exporter of which no more is known."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Kernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernels = tesserine.KernelSet.from_bytes(kernel_set.write(kernel_set.manifest()))
        cls.rmsnorm = cls.kernels.kernel("rmsnorm<bf16>")
        cls.gated = cls.kernels.kernel("silu_and_mul<f16>")
        cls.mixed = cls.kernels.kernel("mixed")

    def good(self, **changed):
        """Arguments of `rmsnorm<bf16>`, some of them changed."""
        arguments = {
            "x": Torch("bfloat16", 8, 64, data_ptr=1 << 20),
            "weight": Torch("bfloat16", 64, data_ptr=2 << 20),
            "out": Torch("bfloat16", 8, 64, data_ptr=3 << 20),
            "eps": 1e-6,
        }
        arguments.update(changed)
        return arguments

    def refused(self, kernel, argument, **named):
        """The message of the ArgumentError, which a call gives as well as a check."""
        with self.assertRaises(tesserine.ArgumentError) as checked:
            kernel.check(**named)
        with self.assertRaises(tesserine.ArgumentError) as called:
            kernel(**named)
        error = checked.exception
        self.assertIsInstance(error, ValueError)
        self.assertEqual(str(error), str(called.exception))
        self.assertEqual((error.kernel, error.argument), (kernel.name, argument))
        if argument is not None:
            self.assertIn(f"`{argument}`", str(error))
        return str(error)


class Good(Kernels):
    def test_dimensions_and_numbers_are_bound(self):
        bound = self.rmsnorm.check(**self.good())
        self.assertEqual(bound, {"m": 8, "n": 64, "eps": 1e-6})

    def test_rows_may_have_any_stride(self):
        x = Torch("bfloat16", 8, 64, stride=(1000, 1))
        self.assertEqual(self.rmsnorm.check(**self.good(x=x))["m"], 8)

    def test_a_dict_takes_what_keywords_cannot(self):
        a = Torch("float8_e4m3fn", 16, 4)
        bound = self.mixed.check({"epi.alpha": 2, "stream": 0.25}, a=a, count=numpy.int32(7), causal=True)
        expected = {"k": 4, "n": 16, "count": 7, "causal": 1, "epi.alpha": 2.0, "stream": 0.25}
        self.assertEqual(bound, expected)

    def test_defaults_and_what_is_left_out(self):
        a = Torch("float8_e4m3fn", 16, 4)
        bound = self.mixed.check(a=a, scale=None)
        self.assertEqual((bound["count"], bound["causal"], bound["epi.alpha"]), (3, 0, 1.0))

    def test_numbers_of_every_kind(self):
        for eps in (1, 0.5, True, numpy.float32(0.5), numpy.float64(0.5), numpy.int64(1), numpy.bool_(True)):
            self.assertEqual(self.rmsnorm.check(**self.good(eps=eps))["eps"], float(eps))

    def test_numpy_arrays(self):
        x, out = numpy.zeros((8, 128), numpy.float16), numpy.zeros((8, 64), numpy.float16)
        self.assertEqual(self.gated.check(x=x, out=out), {"m": 8, "d": 64})
        wide = numpy.zeros((8, 4, 128), numpy.float16)
        self.assertEqual(self.gated.check(x=wide[:, 1], out=out)["d"], 64)
        self.assertEqual(self.gated.check(x=x[::2], out=out[:4])["m"], 4)

    def test_numpy_passes_narrow_floats_as_integers(self):
        bits = {name: numpy.zeros(shape, numpy.uint16) for name, shape in (("x", (8, 64)), ("weight", 64), ("out", (8, 64)))}
        self.assertEqual(self.rmsnorm.check(**bits, eps=1e-6)["n"], 64)
        self.assertEqual(self.mixed.check(a=numpy.zeros((16, 4), numpy.uint8))["n"], 16)

    def test_array_interfaces_of_devices(self):
        x, out = Cuda("<f2", (8, 128)), Cuda("<f2", (8, 64), strides=(512, 2), pointer=1 << 40)
        self.assertEqual(self.gated.check(x=x, out=out), {"m": 8, "d": 64})

    def test_dlpack(self):
        x, out = numpy.zeros((8, 4, 128), numpy.float16)[:, 2], numpy.zeros((8, 64), numpy.float16)
        for _ in range(3):
            self.assertEqual(self.gated.check(x=DlPackOnly(x), out=DlPackOnly(out)), {"m": 8, "d": 64})
        # The address counts the slice's offset: else the two halves would overlap.
        both = numpy.zeros((8, 192), numpy.float16)
        halves = {"x": DlPackOnly(both[:, :128]), "out": DlPackOnly(both[:, 128:])}
        self.assertEqual(self.gated.check(**halves)["d"], 64)

    def test_packed_elements(self):
        a = Torch("float8_e4m3fn", 16, 4)
        for dtype in ("uint8", "float4_e2m1fn_x2"):
            packed = Torch(dtype, 16, 2, data_ptr=1 << 30)
            self.assertEqual(self.mixed.check(a=a, packed=packed)["k"], 4)
        self.assertEqual(self.mixed.check(a=a, scale=Torch("float8_e8m0fnu", 16, data_ptr=2 << 30))["n"], 16)
        self.assertEqual(self.mixed.check(a=a, flags=Torch("bool", 4, data_ptr=2 << 30))["k"], 4)


class Refused(Kernels):
    def test_missing(self):
        arguments = self.good()
        del arguments["out"]
        self.assertEqual(self.refused(self.rmsnorm, "out", **arguments), "`rmsnorm<bf16>`: `out` is missing")
        arguments = self.good(eps=None)
        self.assertEqual(self.refused(self.rmsnorm, "eps", **arguments), "`rmsnorm<bf16>`: `eps` is missing")

    def test_unknown_and_repeated(self):
        message = self.refused(self.rmsnorm, "gamma", **self.good(gamma=object()))
        self.assertEqual(
            message, "`rmsnorm<bf16>` has no parameter `gamma`; it takes `x`, `weight`, `out` and `eps`"
        )
        with self.assertRaises(tesserine.ArgumentError) as caught:
            self.rmsnorm.check({"eps": 1.0}, **self.good())
        self.assertEqual(str(caught.exception), "`eps` is passed twice to `rmsnorm<bf16>`")
        self.assertEqual(caught.exception.argument, "eps")

    def test_extents(self):
        message = self.refused(self.rmsnorm, "weight", **self.good(weight=Torch("bfloat16", 63, data_ptr=2 << 20)))
        self.assertEqual(
            message, "`rmsnorm<bf16>`: `weight` has 63 elements in dimension 0, but `n` is 64 (from `x`)"
        )
        x, out = numpy.zeros((8, 127), numpy.float16), numpy.zeros((8, 64), numpy.float16)
        self.assertIn("127", self.refused(self.gated, "x", x=x, out=out))

    def test_rank(self):
        self.assertIn("3 dimensions", self.refused(self.rmsnorm, "x", **self.good(x=Torch("bfloat16", 2, 4, 64))))

    def test_types(self):
        message = self.refused(self.rmsnorm, "x", **self.good(x=Torch("float16", 8, 64)))
        self.assertEqual(message, "`rmsnorm<bf16>`: `x` has elements of f16, and the kernel takes bf16")
        message = self.refused(self.rmsnorm, "x", **self.good(x=Torch("complex64", 8, 64)))
        self.assertEqual(message, "`rmsnorm<bf16>`: `x` has elements of torch.complex64, which no kernel takes")
        self.assertIn("u16", self.refused(self.rmsnorm, "x", **self.good(x=Torch("uint16", 8, 64))))
        big_endian = numpy.zeros((8, 128), ">f2")
        message = self.refused(self.gated, "x", x=big_endian, out=numpy.zeros((8, 64), numpy.float16))
        self.assertIn("bytes are in the wrong order", message)

    def test_strides(self):
        x = Torch("bfloat16", 8, 64, stride=(1, 8))
        self.assertIn("stride 8 in its last dimension", self.refused(self.rmsnorm, "x", **self.good(x=x)))
        out = Torch("bfloat16", 8, 64, stride=(0, 1), data_ptr=3 << 20)
        self.assertIn("stride 0", self.refused(self.rmsnorm, "out", **self.good(out=out)))
        record = numpy.zeros((8, 128), [("a", numpy.float16), ("b", numpy.int8)])
        out = numpy.zeros((8, 64), numpy.float16)
        self.assertIn("3 bytes", self.refused(self.gated, "x", x=record["a"], out=out))

    def test_overlap(self):
        message = self.refused(self.rmsnorm, "out", **self.good(out=Torch("bfloat16", 8, 64)))
        self.assertIn("`x` and `out` overlap in memory", message)

    def test_tensors_where_numbers_belong_and_the_reverse(self):
        self.assertIn("`x` is of type int", self.refused(self.rmsnorm, "x", **self.good(x=3)))
        self.assertIn("0 dimensions", self.refused(self.gated, "x", x=numpy.float16(1), out=numpy.zeros((8, 64), numpy.float16)))
        self.assertIn("number is wanted", self.refused(self.rmsnorm, "eps", **self.good(eps=Torch("float32", 1))))
        self.assertIn("number is wanted", self.refused(self.rmsnorm, "eps", **self.good(eps="1e-6")))
        self.assertIn("number is wanted", self.refused(self.rmsnorm, "eps", **self.good(eps=[1.0])))

    def test_what_is_no_tensor(self):
        message = self.refused(self.rmsnorm, "x", **self.good(x=[[1.0]]))
        self.assertIn("`x` is of type list, and a tensor is wanted", message)

        class Broken(Torch):
            def data_ptr(self):
                raise RuntimeError("no storage")

        message = self.refused(self.rmsnorm, "x", **self.good(x=Broken("bfloat16", 8, 64)))
        self.assertIn("`x` cannot be read as a tensor: RuntimeError: no storage", message)

    def test_numbers_out_of_range(self):
        a = Torch("float8_e4m3fn", 16, 4)
        self.assertIn("i32", self.refused(self.mixed, "count", a=a, count=1 << 31))
        self.assertIn("i32", self.refused(self.mixed, "count", a=a, count=0.5))
        self.assertIn("64 bits", self.refused(self.mixed, "count", a=a, count=1 << 64))
        self.assertIn("bool", self.refused(self.mixed, "causal", a=a, causal=2))

    def test_conditions_of_the_kernel(self):
        message = self.refused(self.mixed, None, a=Torch("float8_e4m3fn", 16, 5))
        self.assertEqual(message, "`mixed` cannot run on these arguments: it needs k <= 4 (`k` is 5, from `a`)")

    def test_a_single_element_is_not_packed(self):
        a = Torch("float8_e4m3fn", 16, 4)
        self.assertIn("single element", self.refused(self.mixed, "packed", a=a, packed=Torch("uint8")))

    def test_only_dicts_are_taken_whole(self):
        with self.assertRaises(TypeError):
            self.rmsnorm.check([("x", 1)])
        with self.assertRaises(TypeError):
            self.rmsnorm.check({1: 2})


STREAMS = """
import sys, types
import tesserine, kernel_set
from test_arguments import Torch

asked = []
started, private = (word == "True" for word in sys.argv[1:])
torch = types.ModuleType("torch")
torch._C = types.SimpleNamespace()
torch.cuda = types.SimpleNamespace(is_initialized=lambda: started)

def ask(ordinal):
    asked.append(ordinal)
    return 0

if private:
    torch._C._cuda_getCurrentRawStream = ask
else:
    torch.cuda.current_stream = lambda ordinal: types.SimpleNamespace(cuda_stream=ask(ordinal))
sys.modules["torch"] = torch
kernel = tesserine.KernelSet.from_bytes(kernel_set.write(kernel_set.manifest())).kernel("silu_and_mul<f16>")
try:
    # Too wide on purpose: with a driver, too, the launch goes no further than its stream.
    kernel(x=Torch("float16", 8, 127, device="cuda:1"), out=Torch("float16", 8, 64, device="cuda:1", data_ptr=1 << 30))
except tesserine.Error:
    print(asked)
"""


def driver_is_there():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class Launches(Kernels):
    """What a launch says where arguments are good and the machine is not."""

    def test_without_a_driver_there_is_a_sentence(self):
        if driver_is_there():
            self.assertGreaterEqual(tesserine.driver_version(), (11, 0))
            return
        sentence = "there is no CUDA driver here: libcuda.so.1 cannot be loaded"
        numbers = {name: numpy.zeros(shape, numpy.uint16) for name, shape in (("x", (8, 64)), ("weight", 64), ("out", (8, 64)))}
        for launch in (
            lambda: self.rmsnorm(**self.good()),
            lambda: self.rmsnorm(**self.good(), stream=0),
            lambda: self.kernels.launch("rmsnorm<bf16>", **self.good()),
            lambda: self.rmsnorm(**numbers, eps=1e-6),
            lambda: self.rmsnorm.prepare(),
            tesserine.cuda_devices,
            tesserine.driver_version,
        ):
            with self.assertRaises(tesserine.DeviceError) as caught:
                launch()
            self.assertEqual(str(caught.exception), sentence)
            self.assertIsInstance(caught.exception, RuntimeError)

    def test_streams_and_targets_are_checked_first(self):
        with self.assertRaises(tesserine.ArgumentError) as caught:
            self.rmsnorm(**self.good(), stream="fast")
        self.assertEqual(caught.exception.argument, "stream")
        self.assertIn("`stream` is of type str", str(caught.exception))
        with self.assertRaises(tesserine.ArgumentError) as caught:
            self.rmsnorm(**self.good(), target="gfx90a")
        self.assertEqual(caught.exception.argument, "target")
        self.assertIn("gfx90a", str(caught.exception))

    def test_torch_is_asked_for_its_stream_once_it_has_started(self):
        # In processes of their own: what torch answered with is remembered.
        for started, private, asked in ((False, True, []), (True, True, [1]), (True, False, [1])):
            result = subprocess.run(
                [sys.executable, "-B", "-c", STREAMS, repr(started), repr(private)],
                cwd=os.path.dirname(os.path.abspath(__file__)),
                capture_output=True,
                text=True,
            )
            self.assertEqual((result.stderr, result.stdout), ("", f"{asked}\n"))

    def test_a_wrong_argument_comes_before_a_missing_driver(self):
        with self.assertRaises(tesserine.ArgumentError):
            self.kernels.launch("rmsnorm<bf16>", **self.good(x=3))


if __name__ == "__main__":
    unittest.main()
