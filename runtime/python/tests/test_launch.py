"""Launches on a GPU, from torch. Skipped where there is none."""

import unittest

import tesserine

import kernel_set

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

PTX = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry axpy(.param .u64 x, .param .u64 stride, .param .u64 y, .param .u64 n, .param .f32 s)
{
    .reg .pred %p;
    .reg .b32 %r<3>;
    .reg .b64 %d<6>;
    .reg .f32 %f<3>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r0, %r0, %r1, %r2;
    cvt.u64.u32 %d0, %r0;
    ld.param.u64 %d1, [n];
    setp.ge.u64 %p, %d0, %d1;
    @%p ret;
    ld.param.u64 %d2, [x];
    ld.param.u64 %d3, [stride];
    mul.lo.u64 %d3, %d3, %d0;
    shl.b64 %d3, %d3, 2;
    add.u64 %d2, %d2, %d3;
    ld.param.u64 %d4, [y];
    shl.b64 %d5, %d0, 2;
    add.u64 %d4, %d4, %d5;
    ld.param.f32 %f0, [s];
    ld.global.f32 %f1, [%d2];
    ld.global.f32 %f2, [%d4];
    fma.rn.f32 %f2, %f0, %f1, %f2;
    st.global.f32 [%d4], %f2;
    ret;
}
"""


def axpy_set():
    """`axpy(x: view<f32>[n strided], y: mut view<f32>[n], s: f32 = 1)`, as a set."""
    n = kernel_set.dim(0)
    x = kernel_set.view("x", "f32", "read", [n])
    x["kind"]["view"]["strided"] = True
    params = [x, kernel_set.view("y", "f32", "read_write", [n]), kernel_set.number("s", "f32", 1.0)]
    axpy = kernel_set.instance("axpy<f32>", ["n"], params)
    axpy["bodies"][0].update(
        entry="axpy",
        grid=[[{"dim": 0}, {"int": 32}, {"op": "ceil_div"}]],
        abi=[
            {"pointer": {"param": 0}},
            {"stride": {"param": 0, "dim": 0}},
            {"pointer": {"param": 1}},
            {"dim": {"dim": 0}},
            {"scalar": {"param": 2}},
        ],
    )
    manifest = {"name": "axpy", "compiler": "0.0.0", "instances": [axpy]}
    return tesserine.KernelSet.from_bytes(kernel_set.write(manifest, text=PTX))


class Sets(unittest.TestCase):
    def test_the_set_is_sound(self):
        kernel = axpy_set().kernel("axpy<f32>")
        self.assertEqual(repr(kernel), "axpy<f32>(x: f32[n], y: mut f32[n], s: f32 = 1)")


@unittest.skipUnless(numpy is not None, "no NumPy")
class Emulated(unittest.TestCase):
    """Launches on the emulator, from NumPy."""

    def setUp(self):
        self.axpy = axpy_set().kernel("axpy<f32>")

    def test_arrays_are_copied_there_and_back(self):
        x = numpy.arange(100, dtype=numpy.float32)
        y = numpy.ones(100, dtype=numpy.float32)
        launch = self.axpy.emulate(x=x, y=y, s=0.5)
        self.assertEqual((launch.target, launch.code, launch.blocks), ("sm_75", "ptx", 4))
        self.assertTrue((y == 1 + numpy.arange(100) / 2).all())
        self.assertTrue((x == numpy.arange(100)).all())
        # Every third element from the last one down, on another device.
        z = numpy.zeros(34, dtype=numpy.float32)
        self.axpy.emulate({"x": x[::-3]}, y=z, device="emulator:sm_120a")
        self.assertTrue((z == x[::-3]).all())
        self.assertEqual(self.axpy.emulate(x=x[:0], y=z[:0]).blocks, 0)

    def test_what_cannot_be_emulated_is_named(self):
        x = numpy.ones(4, dtype=numpy.float32)
        frozen = numpy.ones(4, dtype=numpy.float32)
        frozen.flags.writeable = False
        for argument, call in [
            ("y", lambda: self.axpy.emulate(x=x, y=frozen)),
            ("y", lambda: self.axpy.emulate(x=x, y=numpy.ones(5, dtype=numpy.float32))),
            ("device", lambda: self.axpy.emulate(x=x, y=x.copy(), device="cuda")),
            ("target", lambda: self.axpy.emulate(x=x, y=x.copy(), target="sm_80")),
        ]:
            with self.assertRaises(tesserine.ArgumentError) as raised:
                call()
            self.assertEqual(raised.exception.argument, argument)
        with self.assertRaises(tesserine.DeviceError):
            self.axpy.emulate(x=x, y=x.copy(), device="emulator:sm_90")


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "no torch with a GPU")
class Launches(unittest.TestCase):
    def setUp(self):
        self.kernels = axpy_set()
        self.axpy = self.kernels.kernel("axpy<f32>")
        self.x = torch.randn(1000, device="cuda")
        self.y = torch.randn(1000, device="cuda")

    def test_tensors_are_used_in_place(self):
        expected = 2 * self.x + self.y
        launch = self.kernels.launch("axpy<f32>", x=self.x, y=self.y, s=2)
        self.assertEqual((launch.target, launch.body, launch.code, launch.blocks), ("sm_75", 0, "ptx", 32))
        torch.testing.assert_close(self.y, expected)

    def test_strides_and_offsets(self):
        x = torch.randn(300, 7, device="cuda")[:, 3]
        y = self.y[11:311]
        expected = x + y
        rest = self.y[311:].clone()
        self.axpy(x=x, y=y)
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(self.y[311:], rest, rtol=0, atol=0)

    def test_the_current_stream_is_used(self):
        expected = self.x + self.y
        self.axpy.prepare()  # loading code may wait for the device
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            self.axpy(x=self.x, y=self.y)
            done = torch.cuda.Event()
            done.record()
        self.assertFalse(done.query(), "the kernel did not wait for what its stream held")
        stream.synchronize()
        torch.testing.assert_close(self.y, expected)
        self.axpy(x=self.x, y=self.y, stream=stream)
        self.axpy(x=self.x, y=self.y, stream=stream.cuda_stream)
        stream.synchronize()
        torch.testing.assert_close(self.y, expected + 2 * self.x)

    def test_graphs_capture_launches(self):
        self.assertEqual(self.axpy.prepare(), "sm_75")
        before = self.y.clone()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.axpy(x=self.x, y=self.y)
        torch.testing.assert_close(self.y, before, rtol=0, atol=0)
        graph.replay()
        graph.replay()
        torch.testing.assert_close(self.y, before + self.x + self.x)

    def test_dlpack_of_the_device(self):
        class Export:
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, **options):
                return self.tensor.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

        expected = self.x + self.y
        self.axpy(x=Export(self.x), y=Export(self.y))
        torch.testing.assert_close(self.y, expected)

    def test_tensors_elsewhere_are_named(self):
        with self.assertRaises(tesserine.ArgumentError) as caught:
            self.axpy(x=self.x.cpu(), y=self.y)
        self.assertEqual(caught.exception.argument, "x")
        self.assertEqual(
            str(caught.exception), "`axpy<f32>`: `x` lies on the CPU, and kernels run on a CUDA device"
        )

    def test_nothing_is_queued_for_empty_tensors(self):
        empty = torch.empty(0, device="cuda")
        self.assertEqual(self.axpy(x=empty, y=empty.clone()).blocks, 0)

    def test_targets_that_are_not_there(self):
        with self.assertRaises(tesserine.ArgumentError) as caught:
            self.axpy(x=self.x, y=self.y, target="sm_90a")
        self.assertEqual(str(caught.exception), "`axpy<f32>` has no code for sm_90a; it has code for sm_75")
        with self.assertRaises(tesserine.DeviceError) as caught:
            self.axpy.prepare(device=4096)
        self.assertIn("there is no device cuda:4096", str(caught.exception))

    def test_devices_are_described(self):
        devices = tesserine.cuda_devices()
        self.assertEqual(len(devices), torch.cuda.device_count())
        self.assertEqual(devices[0].name, torch.cuda.get_device_name(0))
        self.assertEqual(devices[0].capability, torch.cuda.get_device_capability(0))


if __name__ == "__main__":
    unittest.main()
