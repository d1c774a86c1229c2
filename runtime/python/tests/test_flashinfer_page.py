"""Paged caches of `tesserine.flashinfer`, on the emulator, against indexing."""

import unittest

import tesserine

import operators
from operators import e2m1, e4m3, numpy

if numpy is not None:
    from tesserine import flashinfer


@operators.needs_kernels
class Pages(unittest.TestCase):
    """Pages of 4 rows: request 0 has pages 5 and 0 with 6 tokens, request 1 none, request 2 page 2 with 3."""

    def setUp(self):
        self.random = numpy.random.default_rng(7)
        self.indptr, self.ids = numpy.array([0, 2, 2, 3], "i4"), numpy.array([5, 0, 2], "i4")
        self.last = numpy.array([2, 0, 3], "i4")
        # Two tokens for request 0, three for request 2, and one of nobody.
        self.requests, self.at = numpy.array([0, 0, 2, 2, 2, -1], "i4"), numpy.array([4, 5, 0, 1, 2, 0], "i4")
        self.places = [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]

    def test_lengths_and_positions(self):
        lens = flashinfer.get_seq_lens(self.indptr, self.last, 4)
        self.assertEqual(lens.tolist(), [6, 0, 3])
        requests, at = flashinfer.get_batch_indices_positions(numpy.array([0, 2, 2, 5], "i4"), lens, 6)
        self.assertEqual((requests.tolist(), at.tolist()), (self.requests.tolist(), self.at.tolist()))

    def append(self, dtype, layout, pair):
        k, v = (self.random.integers(0, 100, size=(6, 3, 32)).astype(dtype) for _ in range(2))
        shape = (6, 2, 4, 3, 32) if layout == "NHD" else (6, 2, 3, 4, 32)
        cache = numpy.zeros(shape, dtype)
        given = (cache[:, 0], cache[:, 1]) if pair else cache
        flashinfer.append_paged_kv_cache(
            k, v, self.requests, self.at, given, self.ids, self.indptr, self.last, layout
        )
        wanted = numpy.zeros((6, 2, 4, 3, 32), dtype)
        for token, (page, row) in enumerate(self.places):
            wanted[page, 0, row], wanted[page, 1, row] = k[token], v[token]
        self.assertTrue((cache == (wanted if layout == "NHD" else wanted.swapaxes(2, 3))).all())

    def test_append(self):
        for dtype, layout, pair in [("f2", "NHD", False), ("f2", "HND", True), ("u1", "NHD", True)]:
            self.append(dtype, layout, pair)

    def test_append_latent(self):
        ckv, kpe = (self.random.normal(size=(6, width)).astype("f2") for width in (48, 16))
        caches = numpy.zeros((6, 4, 48), "f2"), numpy.zeros((6, 4, 16), "f2")
        flashinfer.append_paged_mla_kv_cache(
            ckv, kpe, self.requests, self.at, *caches, self.ids, self.indptr, self.last
        )
        for rows, cache in zip((ckv, kpe), caches):
            wanted = numpy.zeros_like(cache)
            for token, (page, row) in enumerate(self.places):
                wanted[page, row] = rows[token]
            self.assertTrue((cache == wanted).all())

    def test_append_nvfp4(self):
        k, v = (self.random.normal(size=(6, 3, 32)).astype("f2") for _ in range(2))
        cache, scales = numpy.zeros((6, 2, 4, 3, 16), "u1"), numpy.zeros((6, 2, 4, 3, 2), "u1")
        where = (self.ids, self.indptr, self.last)
        flashinfer.nvfp4_quantize_append_paged_kv_cache(
            k, v, self.requests, self.at, cache, scales, *where, k_scale=0.02, v_scale=0.5
        )
        for token, (page, row) in enumerate(self.places):
            for i, (rows, scale) in enumerate([(k, 0.02), (v, 0.5)]):
                step = e4m3(scales[page, i, row])[..., None] * scale
                wanted = rows[token].astype("f8").reshape(3, 2, 16)
                got = e2m1(cache[page, i, row]).reshape(3, 2, 16) * step
                numpy.testing.assert_allclose(step[..., 0], abs(wanted).max(-1) / 6, rtol=0.07)
                self.assertTrue((abs(got - wanted) <= 0.21 * abs(wanted) + 0.26 * step).all())
        self.assertFalse(cache[1].any() or cache[3:5].any())

    def test_errors(self):
        k = numpy.zeros((6, 3, 32), "f2")
        cache = numpy.zeros((6, 2, 4, 3, 32), "f2")
        where = (self.ids, self.indptr, self.last)
        for name, call in [
            ("kv_layout", lambda: flashinfer.append_paged_kv_cache(k, k, self.requests, self.at, cache, *where, "DNH")),
            ("positions", lambda: flashinfer.append_paged_kv_cache(k, k, self.requests, self.at[1:], cache, *where)),
            ("paged_kv_cache", lambda: flashinfer.append_paged_kv_cache(k, k, self.requests, self.at, k, *where)),
            ("append_value", lambda: flashinfer.append_paged_kv_cache(k, k.astype("f4"), self.requests, self.at, cache, *where)),
        ]:
            with self.assertRaises(tesserine.ArgumentError) as raised:
                call()
            self.assertEqual(raised.exception.argument, name)


if __name__ == "__main__":
    unittest.main()
