"""Top-k and its transforms of `tesserine.flashinfer`, on the emulator, against a sort."""

import unittest

import tesserine

import operators
from operators import numpy

if numpy is not None:
    from tesserine import flashinfer


def order(row):
    """Ids, the largest value first, ties by the lower id."""
    return numpy.argsort(-row.astype("f8"), kind="stable")


@operators.needs_kernels
class TopK(unittest.TestCase):
    def setUp(self):
        random = numpy.random.default_rng(6)
        self.x = random.integers(-40, 40, size=(3, 203)).astype("f4") / 8  # with ties
        self.x[1, 7] = -numpy.inf
        self.random = random

    def test_in_the_order_of_the_columns(self):
        for dtype in ("f4", "f2"):
            x = self.x.astype(dtype)
            values, ids = flashinfer.top_k(x, 9)
            self.assertEqual((values.dtype, ids.dtype), (x.dtype, numpy.int64))
            for row, value, id in zip(x, values, ids):
                wanted = numpy.sort(order(row)[:9])
                self.assertEqual(id.tolist(), wanted.tolist())
                self.assertTrue((value == row[wanted]).all())

    def test_sorted(self):
        values, ids = flashinfer.top_k(self.x, 17, True)
        for row, value, id in zip(self.x, values, ids):
            self.assertEqual(id.tolist(), order(row)[:17].tolist())
            self.assertTrue((value == row[id]).all())

    def test_more_than_there_are(self):
        values, ids = flashinfer.top_k(self.x[:, :5], 8, True)
        self.assertTrue((ids[:, 5:] == -1).all() and (values[:, 5:] == -numpy.inf).all())
        self.assertEqual(ids[0, :5].tolist(), order(self.x[0, :5]).tolist())

    def test_ragged(self):
        lengths, offsets = numpy.array([203, 4, 0], "i4"), numpy.array([0, 1000, 5000], "i4")
        got = flashinfer.top_k_ragged_transform(self.x, offsets, lengths, 6)
        for i in range(3):
            wanted = numpy.sort(order(self.x[i, : lengths[i]])[:6]) + offsets[i]
            self.assertEqual(got[i].tolist(), wanted.tolist() + [-1] * (6 - len(wanted)))
        starts = numpy.array([3, 100, 0], "i4")
        got = flashinfer.top_k_ragged_transform(self.x, offsets, numpy.array([50, 103, 1], "i4"), 6, row_starts=starts)
        self.assertEqual(got[1].tolist(), (numpy.sort(order(self.x[1, 100:])[:6]) + 1000).tolist())

    def test_page_tables(self):
        lengths = numpy.array([203, 150, 2], "i4")
        table = self.random.integers(0, 1 << 20, size=(2, 203)).astype("i4")
        rows, out = numpy.array([1, 0, 1], "i4"), numpy.empty((3, 5), "i4")
        self.assertIs(flashinfer.top_k_page_table_transform(self.x, table, lengths, 5, rows, out=out), out)
        for i in range(3):
            wanted = table[rows[i]][numpy.sort(order(self.x[i, : lengths[i]])[:5])]
            self.assertEqual(out[i].tolist(), wanted.tolist() + [-1] * (5 - len(wanted)))

    def test_pages_of_several(self):
        lengths = numpy.array([203, 150, 2], "i4")
        table = self.random.integers(0, 1 << 20, size=(3, 60)).astype("i4")
        raw, starts = numpy.empty((3, 5), "i4"), numpy.array([2, 0, 9], "i4")
        got = flashinfer.top_k_page_table_transform(
            self.x, table, lengths, 5, page_table_row_starts=starts, page_size=4, out_raw_indices=raw
        )
        for i in range(3):
            ids = numpy.sort(order(self.x[i, : lengths[i]])[:5])
            wanted = table[i][starts[i] + ids // 4] * 4 + ids % 4
            self.assertEqual(raw[i].tolist(), ids.tolist() + [-1] * (5 - len(ids)))
            self.assertEqual(got[i].tolist(), wanted.tolist() + [-1] * (5 - len(ids)))

    def test_errors(self):
        with self.assertRaises(NotImplementedError):
            flashinfer.top_k(self.x, 3, tie_break=flashinfer.TopKTieBreak.LARGE)
        with self.assertRaises(NotImplementedError):
            flashinfer.top_k(self.x, 3000, True)
        for name, call in [
            ("input", lambda: flashinfer.top_k(self.x[0], 3)),
            ("lengths", lambda: flashinfer.top_k_ragged_transform(self.x, numpy.zeros(3, "i4"), numpy.zeros(2, "i4"), 3)),
            ("page_size", lambda: flashinfer.top_k_page_table_transform(self.x, self.x, self.x, 3, page_size=3)),
        ]:
            with self.assertRaises(tesserine.ArgumentError) as raised:
                call()
            self.assertEqual(raised.exception.argument, name)


if __name__ == "__main__":
    unittest.main()
