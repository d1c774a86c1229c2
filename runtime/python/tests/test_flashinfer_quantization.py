"""Quantisers and packed bits of `tesserine.flashinfer`, on the emulator, against the formats' definitions."""

import unittest

import tesserine

import operators
from operators import E2M1, e2m1, e4m3, numpy

if numpy is not None:
    from tesserine import flashinfer


def rows_of_tiles(tiles, rows, columns):
    """Scales in tiles of 128 rows by 4 columns, row by row."""
    wide = tiles.reshape(-1)
    row, column = numpy.mgrid[:rows, :columns]
    tile = row // 128 * (-(-columns // 4)) + column // 4
    return wide[tile * 512 + row % 32 * 16 + row // 32 % 4 * 4 + column % 4]


def nearest(values, wanted, grid):
    """Whether each value is one of the grid's nearest to what is wanted."""
    grid = numpy.unique(numpy.array(grid, "f8"))
    best = abs(wanted[..., None] - grid).min(-1)
    return (abs(values - wanted) <= best * (1 + 1e-5) + 1e-7).all()


FP8 = None if numpy is None else e4m3(numpy.array([c for c in range(256) if c & 127 != 127]))


@operators.needs_kernels
class Quantisers(unittest.TestCase):
    def setUp(self):
        random = numpy.random.default_rng(4)
        self.x = (random.normal(size=(3, 160)) * 2.0 ** random.integers(-3, 4, size=(3, 1))).astype("f2")
        self.x[1, 32:64] = 0

    def groups(self, size):
        return self.x.astype("f8").reshape(3, -1, size)

    def check(self, values, scales, size, grid):
        """values: as stored, of [3, 160]; scales: what they are multiplied by, a group."""
        scales = scales.reshape(3, -1, 1)
        wanted = numpy.divide(self.groups(size), scales, where=scales != 0, out=numpy.zeros(self.groups(size).shape))
        self.assertTrue(nearest(values.reshape(wanted.shape), wanted, grid))

    def powers(self, size, largest):
        """The powers of two at or above what brings each group's largest magnitude to the type's."""
        top = abs(self.groups(size)).max(-1) / largest
        return 2.0 ** numpy.ceil(numpy.log2(numpy.maximum(top, 2.0**-127)))

    def test_mxfp8(self):
        codes, scales = flashinfer.mxfp8_quantize(self.x, is_sf_swizzled_layout=False)
        self.assertEqual((codes.shape, scales.shape), ((3, 160), (15,)))
        scales = 2.0 ** (scales.reshape(3, 5).astype("f8") - 127)
        self.assertTrue((scales == self.powers(32, 448.0)).all())
        self.check(e4m3(codes), scales, 32, FP8)
        again, tiles = flashinfer.mxfp8_quantize(self.x)
        self.assertEqual(tiles.shape, (128 * 8,))
        self.assertTrue((again == codes).all())
        self.assertTrue((2.0 ** (rows_of_tiles(tiles, 3, 5).astype("f8") - 127) == scales).all())

    def test_mxfp4(self):
        codes, scales = flashinfer.mxfp4_quantize(self.x, sfLayout=flashinfer.SfLayout.layout_linear)
        self.assertEqual((codes.shape, scales.shape), ((3, 80), (3, 5)))
        scales = 2.0 ** (scales.astype("f8") - 127)
        self.assertTrue((scales == self.powers(32, 6.0)).all())
        self.check(e2m1(codes), scales, 32, E2M1)
        again, tiles = flashinfer.mxfp4_quantize(self.x)
        self.assertEqual(tiles.shape, (128, 8))
        self.assertTrue((again == codes).all())
        self.assertTrue((2.0 ** (rows_of_tiles(tiles, 3, 5).astype("f8") - 127) == scales).all())

    def test_nvfp4(self):
        scale = numpy.array([128.0], "f4")
        codes, scales = flashinfer.fp4_quantize(self.x, scale, is_sf_swizzled_layout=False)
        self.assertEqual((codes.shape, scales.shape), ((3, 80), (3, 10)))
        top = abs(self.groups(16)).max(-1) / 6 * 128
        self.assertTrue(nearest(e4m3(scales), top, FP8))
        self.check(e2m1(codes), e4m3(scales) / 128, 16, E2M1)
        again, tiles = flashinfer.nvfp4_quantize(self.x, scale)
        self.assertEqual(tiles.shape, (128, 12))
        self.assertTrue((again == codes).all())
        self.assertTrue((rows_of_tiles(tiles, 3, 12)[:, :10] == scales).all())

    def test_groups_of_128(self):
        x = numpy.concatenate([self.x, self.x[:, :96]], axis=1)
        for column_major in (False, True):
            codes, scales = flashinfer.per_token_group_quant_8bit(x, 128, column_major_scales=column_major)
            self.assertEqual((codes.shape, scales.shape, scales.dtype), ((3, 256), (3, 2), numpy.float32))
            groups = x.astype("f8").reshape(3, 2, 128)
            numpy.testing.assert_allclose(scales, abs(groups).max(-1) / 448, rtol=1e-6)
            self.assertTrue(nearest(e4m3(codes).reshape(groups.shape), groups / scales[..., None].astype("f8"), FP8))
        self.assertEqual(scales.strides, (4, 12))

    def test_what_there_is_not(self):
        for call in [
            lambda: flashinfer.fp4_quantize(self.x, 1.0, is_sf_8x4_layout=True),
            lambda: flashinfer.fp4_quantize(self.x, 1.0, sf_vec_size=32),
            lambda: flashinfer.mxfp8_quantize(self.x, alignment=64),
            lambda: flashinfer.per_token_group_quant_8bit(self.x, 64),
            lambda: flashinfer.nvfp4_quantize(self.x, 1.0, do_shuffle=True),
        ]:
            with self.assertRaises(NotImplementedError):
                call()
        for name, call in [
            ("global_scale", lambda: flashinfer.fp4_quantize(self.x)),
            ("input", lambda: flashinfer.mxfp8_quantize(self.x[:, :33])),
            ("backend", lambda: flashinfer.mxfp8_quantize(self.x, backend="x")),
        ]:
            with self.assertRaises(tesserine.ArgumentError) as raised:
                call()
            self.assertEqual(raised.exception.argument, name)


@operators.needs_kernels
class Bits(unittest.TestCase):
    def setUp(self):
        self.x = numpy.random.default_rng(5).integers(0, 2, size=45).astype(bool)

    def test_packbits(self):
        for order in ("big", "little"):
            for n in (0, 1, 8, 45):
                got = flashinfer.packbits(self.x[:n], order)
                self.assertTrue((got == numpy.packbits(self.x[:n], bitorder=order)).all(), (order, n))
        self.assertTrue((flashinfer.packbits(self.x) == numpy.packbits(self.x)).all())

    def test_segments(self):
        indptr = numpy.array([0, 20, 20, 28, 45])
        for order in ("big", "little"):
            got, starts = flashinfer.segment_packbits(self.x, indptr, order)
            self.assertEqual(starts.tolist(), [0, 3, 3, 4, 7])
            parts = [numpy.packbits(self.x[a:b], bitorder=order) for a, b in zip(indptr, indptr[1:])]
            self.assertTrue((got == numpy.concatenate(parts)).all())

    def test_orders(self):
        with self.assertRaises(tesserine.ArgumentError) as raised:
            flashinfer.packbits(self.x, "middle")
        self.assertEqual(raised.exception.argument, "bitorder")


if __name__ == "__main__":
    unittest.main()
