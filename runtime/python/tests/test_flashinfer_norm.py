"""Norms and activations of `tesserine.flashinfer`, on the emulator, against f64."""

import math
import unittest

import tesserine

import operators
from operators import close, e4m3, numpy

if numpy is not None:
    from tesserine import flashinfer


def rms(x, weight, eps=1e-6):
    x = x.astype("f8")
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight.astype("f8")


@operators.needs_kernels
class Norms(unittest.TestCase):
    def setUp(self):
        random = numpy.random.default_rng(1)
        self.x = random.normal(size=(3, 111)).astype("f2")
        self.residual = random.normal(size=(3, 111)).astype("f2")
        self.weight = random.normal(size=111).astype("f2")
        self.random = random

    def test_rmsnorm(self):
        out = flashinfer.rmsnorm(self.x, self.weight)
        self.assertEqual((out.shape, out.dtype), (self.x.shape, self.x.dtype))
        close(out, rms(self.x, self.weight))
        own = numpy.empty_like(self.x)
        self.assertIs(flashinfer.rmsnorm(self.x, self.weight, 0.5, own), own)
        close(own, rms(self.x, self.weight, 0.5))

    def test_heads_are_rows(self):
        x = self.random.normal(size=(2, 3, 64)).astype("f2")
        out = flashinfer.rmsnorm(x, self.weight[:64])
        self.assertEqual(out.shape, x.shape)
        close(out, rms(x, self.weight[:64]))

    def test_fused_add_rmsnorm_is_in_place(self):
        total = (self.x.astype("f4") + self.residual.astype("f4")).astype("f2")
        self.assertIsNone(flashinfer.fused_add_rmsnorm(self.x, self.residual, self.weight))
        self.assertTrue((self.residual == total).all())
        close(self.x, rms(total, self.weight))

    def test_gemma(self):
        close(flashinfer.gemma_rmsnorm(self.x, self.weight), rms(self.x, 1 + self.weight.astype("f8")))
        total = (self.x.astype("f4") + self.residual.astype("f4")).astype("f2")
        flashinfer.gemma_fused_add_rmsnorm(self.x, self.residual, self.weight)
        self.assertTrue((self.residual == total).all())
        close(self.x, rms(total, 1 + self.weight.astype("f8")))

    def test_quantised(self):
        out = numpy.empty(self.x.shape, "u1")
        self.assertIsNone(flashinfer.rmsnorm_quant(out, self.x, self.weight, 0.125))
        close(e4m3(out), rms(self.x, self.weight) * 8, relative=1 / 15, absolute=2e-3)
        total = (self.x.astype("f4") + self.residual.astype("f4")).astype("f2")
        scale = numpy.array([0.25], "f4")
        flashinfer.fused_add_rmsnorm_quant(out, self.x, self.residual, self.weight, scale)
        self.assertTrue((self.residual == total).all())
        close(e4m3(out), rms(total, self.weight) * 4, relative=1 / 15, absolute=2e-3)
        gamma, beta = self.weight.astype("f4"), numpy.zeros(111, "f4")
        flashinfer.layernorm_quant(out, self.x, gamma, beta, 0.5)
        x = self.x.astype("f8")
        wanted = (x - x.mean(-1, keepdims=True)) / numpy.sqrt(x.var(-1, keepdims=True) + 1e-6) * gamma * 2
        close(e4m3(out), wanted, relative=1 / 15, absolute=2e-3)
        with self.assertRaises(tesserine.ArgumentError) as raised:
            flashinfer.rmsnorm_quant(self.x, self.x, self.weight, 1.0)
        self.assertEqual(raised.exception.argument, "out")

    def test_layernorm(self):
        gamma, beta = (self.random.normal(size=111).astype("f4") for _ in range(2))
        out = flashinfer.layernorm(self.x, gamma, beta, 1e-3)
        x = self.x.astype("f8")
        scale = 1 / numpy.sqrt(x.var(-1, keepdims=True) + 1e-3)
        close(out, (x - x.mean(-1, keepdims=True)) * scale * gamma + beta)

    def test_errors_name_the_operators_own_arguments(self):
        for name, call in [
            ("weight", lambda: flashinfer.rmsnorm(self.x, self.weight[1:])),
            ("input", lambda: flashinfer.rmsnorm(self.x[0], self.weight)),
            ("gemma", lambda: flashinfer.layernorm(self.x, self.weight, self.weight)),
            ("residual", lambda: flashinfer.fused_add_rmsnorm(self.x, self.residual.astype("f4"), self.weight)),
        ]:
            with self.assertRaises(tesserine.ArgumentError) as raised:
                call()
            self.assertEqual(raised.exception.argument, name)
            self.assertIn(f"`{name}`", str(raised.exception))
        with self.assertRaises(NotImplementedError) as raised:
            flashinfer.rmsnorm(self.x.astype("f8"), self.weight)
        self.assertIn("rmsnorm<f64>", str(raised.exception))


@operators.needs_kernels
class Activations(unittest.TestCase):
    def setUp(self):
        self.x = numpy.random.default_rng(2).normal(size=(2, 2 * 37)).astype("f2")
        self.gate, self.up = self.x[:, :37].astype("f8"), self.x[:, 37:].astype("f8")

    def test_silu_and_mul(self):
        wanted = self.gate / (1 + numpy.exp(-self.gate)) * self.up
        close(flashinfer.silu_and_mul(self.x), wanted)
        out = flashinfer.silu_and_mul(self.x.reshape(2, 1, -1))
        self.assertEqual(out.shape, (2, 1, 37))
        close(out[:, 0], wanted)

    def test_gelu_and_mul(self):
        normal = numpy.array([[1 + math.erf(g / math.sqrt(2)) for g in row] for row in self.gate]) / 2
        close(flashinfer.gelu_and_mul(self.x), self.gate * normal * self.up, absolute=1e-5)

    def test_gelu_tanh_and_mul(self):
        inner = 0.7978845608028654 * (self.gate + 0.044715 * self.gate**3)
        out = numpy.empty((2, 37), "f2")
        self.assertIs(flashinfer.gelu_tanh_and_mul(self.x, out), out)
        close(out, 0.5 * self.gate * (1 + numpy.tanh(inner)) * self.up)

    def test_halves(self):
        with self.assertRaises(tesserine.ArgumentError) as raised:
            flashinfer.silu_and_mul(self.x[:, 1:])
        self.assertEqual(raised.exception.argument, "input")
        with self.assertRaises(tesserine.ArgumentError) as raised:
            flashinfer.silu_and_mul(self.x, numpy.empty((3, 37), "f2"))
        self.assertEqual(raised.exception.argument, "out")


if __name__ == "__main__":
    unittest.main()
