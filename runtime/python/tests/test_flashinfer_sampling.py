"""Samplers of `tesserine.flashinfer`, on the emulator: what may be drawn, how often, and the rows that filters leave."""

import unittest

import tesserine

import operators
from operators import close, numpy

if numpy is not None:
    from tesserine import flashinfer
    from tesserine.flashinfer import sampling


def ranks(row):
    """How many come before each column when the largest come first, ties by the lower column."""
    order = numpy.argsort(-row.astype("f8"), kind="stable")
    ranks = numpy.empty(len(row), int)
    ranks[order] = numpy.arange(len(row))
    return ranks


def kept(row, k=None, p=None, min_p=None, joint=False):
    """The columns that filters leave of a row of probabilities."""
    rank = ranks(row)
    left = row > 0
    if k is not None:
        left &= rank < k
    if p is not None:
        weights = row.astype("f8") * (numpy.ones(len(row)) if joint else left)
        order = numpy.argsort(rank)
        before = numpy.empty(len(row))
        before[order] = numpy.concatenate([[0], numpy.cumsum(weights[order])[:-1]])
        left &= before < p * weights.sum()
    if min_p is not None:
        left &= row >= min_p * row.max()
    return left


@operators.needs_kernels
class Draws(unittest.TestCase):
    def setUp(self):
        random = numpy.random.default_rng(8)
        self.logits = (2 * random.normal(size=(4, 97))).astype("f4")
        weights = numpy.exp(self.logits.astype("f8"))
        self.probs = (weights / weights.sum(-1, keepdims=True)).astype("f4")

    def inside(self, ids, **filters):
        each = {name: value if isinstance(value, list) else [value] * 4 for name, value in filters.items()}
        for i, id in enumerate(ids.tolist()):
            self.assertTrue(kept(self.probs[i], **{name: value[i] for name, value in each.items()})[id], (i, id))

    def test_filters_leave_what_they_say(self):
        top_k, top_p = numpy.array([1, 2, 5, 200], "i4"), numpy.array([0.3, 1.0, 0.5, 0.9], "f4")
        for offset in range(3):
            draw = {"seed": 5, "offset": offset}
            ids = flashinfer.sampling_from_probs(self.probs, **draw)
            self.assertEqual((ids.shape, ids.dtype), ((4,), numpy.int32))
            self.inside(ids)
            self.inside(flashinfer.sampling_from_logits(self.logits, **draw))
            self.inside(flashinfer.top_p_sampling_from_probs(self.probs, 0.5, **draw), p=0.5)
            self.inside(flashinfer.top_k_sampling_from_probs(self.probs, top_k, **draw), k=top_k.tolist())
            self.inside(flashinfer.min_p_sampling_from_probs(self.probs, 0.3, **draw), min_p=0.3)
            both = {"k": top_k.tolist(), "p": top_p.tolist()}
            self.inside(flashinfer.top_k_top_p_sampling_from_probs(self.probs, top_k, top_p, **draw), **both)
            self.inside(flashinfer.top_k_top_p_sampling_from_logits(self.logits, top_k, top_p, **draw), **both)
            ids = flashinfer.top_k_top_p_sampling_from_probs(self.probs, 5, 0.5, filter_apply_order="joint", **draw)
            self.inside(ids, k=5, p=0.5, joint=True)

    def test_one_column_is_left(self):
        largest = self.probs.argmax(-1).tolist()
        self.assertEqual(flashinfer.top_k_sampling_from_probs(self.probs, 1, seed=1, offset=0).tolist(), largest)
        self.assertEqual(flashinfer.top_p_sampling_from_probs(self.probs, 1e-9, seed=1, offset=0).tolist(), largest)
        self.assertEqual(flashinfer.min_p_sampling_from_probs(self.probs, 1.0, seed=1, offset=0).tolist(), largest)

    def test_frequencies(self):
        probs = numpy.array([[0.5, 0.25, 0.125, 0.125, 0.0]], "f4")
        rows = numpy.zeros(512, "i4")
        ids = flashinfer.sampling_from_probs(probs, rows, seed=3, offset=0)
        counts = numpy.bincount(ids, minlength=5)
        expected = 512 * probs[0]
        self.assertEqual(counts[4], 0)
        # Three degrees of freedom: one in a million is above 30.
        self.assertLess((((counts - expected) ** 2)[:4] / expected[:4]).sum(), 30)

    def test_seeds(self):
        seeds, offsets = numpy.array([9, 10, 11, 12]), numpy.array([7, 7, 7, 7])
        ids = flashinfer.sampling_from_probs(self.probs, seed=seeds, offset=offsets)
        # A request draws the same in any batch.
        alone = flashinfer.sampling_from_probs(self.probs[2:3], seed=seeds[2:3], offset=offsets[2:3])
        self.assertEqual(alone[0], ids[2])
        # One seed for all rows is a seed for each.
        same = flashinfer.sampling_from_probs(self.probs, seed=9, offset=7)
        self.assertEqual(same.tolist(), ids.tolist())
        same = flashinfer.sampling_from_probs(self.probs, seed=seeds[:1], offset=offsets[:1])
        self.assertEqual(same.tolist(), ids.tolist())
        # Seeds of 64 bits, as unsigned ones.
        flashinfer.sampling_from_probs(self.probs, seed=(1 << 64) - 1, offset=0)

    def test_rows_by_index(self):
        rows = numpy.array([3, 3, 0])
        ids = flashinfer.top_k_sampling_from_probs(self.probs, 1, rows, seed=1, offset=0)
        self.assertEqual(ids.dtype, numpy.int64)
        self.assertEqual(ids.tolist(), self.probs.argmax(-1)[rows].tolist())

    def test_rows_of_nothing(self):
        probs = self.probs.copy()
        probs[1] = 0
        ids, valid = flashinfer.top_p_sampling_from_probs(probs, 0.5, seed=1, offset=0, return_valid=True)
        self.assertEqual(valid.tolist(), [True, False, True, True])
        self.assertEqual(ids[1], -1)
        probs[0, 3] = numpy.nan
        with self.assertRaises(ValueError):
            flashinfer.sampling_from_probs(probs, check_nan=True, seed=1, offset=0)

    def test_softmax(self):
        def wanted(logits, heat):
            e = numpy.exp((logits - logits.max(-1, keepdims=True)).astype("f8") / heat)
            return e / e.sum(-1, keepdims=True)

        close(sampling.softmax(self.logits), wanted(self.logits, 1), 1e-5, 1e-7)
        heat = numpy.array([0.5, 1, 2, 0.1], "f4")
        close(sampling.softmax(self.logits, heat), wanted(self.logits, heat.astype("f8")[:, None]), 1e-5, 1e-7)
        cold = sampling.softmax(self.logits, 0.0)
        self.assertTrue((cold == (ranks_of(self.logits) == 0)).all())

    def test_filtered_rows(self):
        top_k = numpy.array([1, 2, 5, 200], "i4")
        for got, filters in [
            (flashinfer.top_p_renorm_probs(self.probs, 0.5), [{"p": 0.5}] * 4),
            (flashinfer.top_k_renorm_probs(self.probs, top_k), [{"k": k} for k in top_k.tolist()]),
        ]:
            left = numpy.stack([kept(row, **f) for row, f in zip(self.probs, filters)]) * self.probs.astype("f8")
            close(got, left / left.sum(-1, keepdims=True), 1e-5, 1e-7)
        masked = flashinfer.top_k_mask_logits(self.logits, 7)
        wanted = numpy.where(ranks_of(self.logits) < 7, self.logits, -numpy.inf)
        self.assertTrue((masked == wanted).all())

    def test_chain(self):
        draft = numpy.zeros((2, 2, 4), "f4")
        target = numpy.zeros((2, 3, 4), "f4")
        draft[:, :, 1] = 1
        # Request 0 accepts both and gets a third; request 1 accepts neither.
        target[0, :2, 1], target[0, 2, 3], target[1, :, 2] = 1, 1, 1
        tokens = numpy.ones((2, 2), "i4")
        emitted = numpy.array([10, 20], "i4")
        ids, accepted, same = flashinfer.chain_speculative_sampling(
            draft, tokens, target, maybe_output_emitted_draft_token_num=emitted, seed=1, offset=0
        )
        self.assertEqual(ids.tolist(), [[1, 1, 3], [2, -1, -1]])
        self.assertEqual(accepted.tolist(), [2, 0])
        self.assertIs(same, emitted)
        self.assertEqual(emitted.tolist(), [12, 20])

    def test_errors(self):
        for name, call in [
            ("seed", lambda: flashinfer.sampling_from_probs(self.probs)),
            ("offset", lambda: flashinfer.sampling_from_probs(self.probs, seed=1)),
            ("probs", lambda: flashinfer.sampling_from_probs(self.probs[0], seed=1, offset=0)),
            ("top_p", lambda: flashinfer.top_p_renorm_probs(self.probs, self.probs)),
            ("top_k", lambda: flashinfer.top_k_mask_logits(self.logits, numpy.ones(3, "i4"))),
            ("seed", lambda: flashinfer.sampling_from_probs(self.probs, seed=numpy.ones(3, int), offset=0)),
            ("filter_apply_order", lambda: flashinfer.top_k_top_p_sampling_from_probs(self.probs, 1, 1.0, None, "last")),
        ]:
            with self.assertRaises(tesserine.ArgumentError) as raised:
                call()
            self.assertEqual(raised.exception.argument, name)


def ranks_of(x):
    return numpy.stack([ranks(row) for row in x])


if __name__ == "__main__":
    unittest.main()
