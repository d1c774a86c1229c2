"""Rotary embedding of `tesserine.flashinfer`, on the emulator, against f64."""

import unittest

import tesserine

import operators
from operators import close, e4m3, numpy

if numpy is not None:
    from tesserine import flashinfer


def angles(positions, width, theta, scale=1.0, llama=None):
    """[tokens, width / 2] in f64."""
    frequency = theta ** (-2.0 * numpy.arange(width // 2) / width)
    if llama is None:
        frequency = frequency / scale
    else:
        low, high, old_len = llama
        wave = 2 * numpy.pi / frequency
        smooth = numpy.clip((old_len / wave - low) / (high - low), 0, 1)
        frequency = (1 - smooth) * frequency / scale + smooth * frequency
    return positions.astype("f8")[:, None] * frequency


def turned(x, angle, interleave=False):
    """x: [tokens, heads, dim], of which the first columns turn by [tokens, pairs]."""
    x, pairs = x.astype("f8"), angle.shape[1]
    cos, sin = numpy.cos(angle)[:, None], numpy.sin(angle)[:, None]
    out = x.copy()
    first = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleave else (slice(0, pairs), slice(pairs, 2 * pairs))
    a, b = x[..., first[0]], x[..., first[1]]
    out[..., first[0]] = a * cos - b * sin
    out[..., first[1]] = b * cos + a * sin
    return out


def table(positions, width, theta=1e4):
    angle = angles(numpy.arange(positions), width, theta)
    return numpy.concatenate([numpy.cos(angle), numpy.sin(angle)], axis=1).astype("f4")


@operators.needs_kernels
class Rope(unittest.TestCase):
    def setUp(self):
        random = numpy.random.default_rng(3)
        self.q = random.normal(size=(5, 3, 64)).astype("f2")
        self.k = random.normal(size=(5, 2, 64)).astype("f2")
        self.positions = numpy.array([0, 7, 100, 3, 31], "i4")
        self.random = random

    def check(self, got, angle, interleave=False):
        for out, x in zip(got, (self.q, self.k)):
            close(out, turned(x, angle, interleave), absolute=1e-3)

    def test_positions(self):
        angle = angles(self.positions, 64, 1e4, 2.0)
        self.check(flashinfer.apply_rope_pos_ids(self.q, self.k, self.positions.astype("i8"), rope_scale=2.0), angle)
        q, k = self.q.copy(), self.k.copy()
        self.assertIsNone(flashinfer.apply_rope_pos_ids_inplace(q, k, self.positions, rope_scale=2.0))
        self.check((q, k), angle)

    def test_some_columns_turn(self):
        angle = angles(self.positions, 32, 1e4)
        self.check(flashinfer.apply_rope_pos_ids(self.q, self.k, self.positions, rotary_dim=32), angle)
        q, k = self.q.copy(), self.k.copy()
        flashinfer.apply_rope_pos_ids_inplace(q, k, self.positions, 32)
        self.check((q, k), angle)
        self.assertTrue((q[..., 32:] == self.q[..., 32:]).all())

    def test_ragged_and_interleaved(self):
        indptr, offsets = numpy.array([0, 2, 2, 5], "i4"), numpy.array([10, 5, 3], "i4")
        positions = numpy.array([10, 11, 3, 4, 5])
        got = flashinfer.apply_rope(self.q, self.k, indptr, offsets, interleave=True, rope_theta=500.0)
        self.check(got, angles(positions, 64, 500.0), True)

    def test_llama31(self):
        angle = angles(self.positions, 64, 5e5, 8.0, (1, 4, 8192))
        self.check(flashinfer.apply_llama31_rope_pos_ids(self.q, self.k, self.positions), angle)
        q, k = self.q.copy(), self.k.copy()
        indptr, offsets = numpy.array([0, 5], "i4"), numpy.array([2000], "i4")
        flashinfer.apply_llama31_rope_inplace(q, k, indptr, offsets, old_context_len=512)
        self.check((q, k), angles(2000 + numpy.arange(5), 64, 5e5, 8.0, (1, 4, 512)))

    def test_tables(self):
        cache = table(128, 32)
        angle = angles(self.positions, 32, 1e4)
        rows = [x.reshape(5, -1) for x in (self.q, self.k)]
        q, k = flashinfer.apply_rope_with_cos_sin_cache(self.positions, *rows, 64, cache)
        self.assertEqual((q.shape, k.shape), ((5, 192), (5, 128)))
        self.check((q.reshape(self.q.shape), k.reshape(self.k.shape)), angle)
        rows = [x.copy() for x in rows]
        flashinfer.apply_rope_with_cos_sin_cache_inplace(self.positions.astype("i8"), *rows, 64, cache, is_neox=False)
        self.check((rows[0].reshape(self.q.shape), rows[1].reshape(self.k.shape)), angle, True)

    def test_fp8(self):
        cache = table(128, 64)
        q_nope, k_nope = self.q[..., :16].copy(), self.k[..., :16].copy()
        got = flashinfer.rope.rope_quantize_fp8(
            self.q, self.k, q_nope, k_nope, cache, self.positions, quant_scale_q=8.0, quant_scale_kv=4.0
        )
        angle = angles(self.positions, 64, 1e4)
        wanted = (turned(self.q, angle) * 8, turned(self.k, angle) * 4, q_nope * 8.0, k_nope * 4.0)
        for codes, want in zip(got, wanted):
            close(e4m3(codes), want, relative=1 / 15, absolute=2e-3)

    def test_fp8_to_latent_caches(self):
        k_rope, k_nope = self.k[:, 0, :64].copy(), self.random.normal(size=(5, 48)).astype("f2")
        ckv, kpe = numpy.zeros((4, 2, 48), "u1"), numpy.zeros((4, 2, 64), "u1")
        requests, at = numpy.array([0, 0, 0, 1, -1], "i4"), numpy.array([0, 1, 2, 0, 0], "i4")
        indptr, ids = numpy.array([0, 2, 3], "i4"), numpy.array([3, 1, 2], "i4")
        q, rest = flashinfer.rope.rope_quantize_fp8_append_paged_kv_cache(
            self.q,
            k_rope,
            None,
            k_nope,
            None,
            table(128, 64),
            self.positions,
            (ckv, kpe),
            ids,
            indptr,
            requests,
            at,
            is_neox=False,
            page_size=2,
        )
        angle = angles(self.positions, 64, 1e4)
        close(e4m3(q), turned(self.q, angle, True), relative=1 / 15, absolute=2e-3)
        self.assertEqual(rest.shape, (5, 3, 0))
        wanted = turned(k_rope[:, None], angle, True)[:, 0]
        for token, (page, row) in enumerate([(3, 0), (3, 1), (1, 0), (2, 0)]):
            close(e4m3(kpe[page, row]), wanted[token], relative=1 / 15, absolute=2e-3)
            close(e4m3(ckv[page, row]), k_nope[token].astype("f8"), relative=1 / 15, absolute=2e-3)
        self.assertFalse(kpe[0].any() or kpe[1, 1].any() or kpe[2, 1].any())

    def test_errors(self):
        for name, call in [
            ("rotary_dim", lambda: flashinfer.apply_rope_pos_ids(self.q, self.k, self.positions, 33)),
            ("pos_ids", lambda: flashinfer.apply_rope_pos_ids(self.q, self.k, self.positions[1:])),
            ("q", lambda: flashinfer.apply_rope_pos_ids(self.q[0], self.k, self.positions)),
            ("query", lambda: flashinfer.apply_rope_with_cos_sin_cache(self.positions, self.q, self.k, 64, table(8, 64))),
        ]:
            with self.assertRaises(tesserine.ArgumentError) as raised:
                call()
            self.assertEqual(raised.exception.argument, name)


if __name__ == "__main__":
    unittest.main()
