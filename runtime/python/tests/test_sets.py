"""Kernel sets: opening, what is refused, and what they list."""

import os
import pathlib
import pickle
import tempfile
import unittest

import tesserine

import kernel_set


class Sets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bytes = kernel_set.write(kernel_set.manifest())

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def refused(self, data):
        path = self.write("refused.tset", data)
        with self.assertRaises(tesserine.SetError) as caught:
            tesserine.KernelSet(path)
        message = str(caught.exception)
        self.assertIn("refused.tset", message)
        with self.assertRaises(tesserine.SetError):
            tesserine.KernelSet.from_bytes(data)
        return message

    def test_a_set_lists_its_kernels(self):
        path = self.write("good.tset", self.bytes)
        kernels = tesserine.KernelSet(path)
        self.assertEqual(kernels.name, "by-hand")
        self.assertEqual(kernels.compiler, "0.0.0")
        self.assertEqual(kernels.path, path)
        self.assertEqual(kernels.kernels, ["rmsnorm<bf16>", "silu_and_mul<f16>", "mixed"])
        self.assertEqual(list(kernels), kernels.kernels)
        self.assertEqual(len(kernels), 3)
        self.assertIn("rmsnorm < bf16 >", kernels)
        self.assertNotIn("rmsnorm<f16>", kernels)
        self.assertEqual(repr(kernels), "<KernelSet by-hand: 3 kernels>")
        self.assertEqual(tesserine.KernelSet(str(path)).kernels, kernels.kernels)
        self.assertIsNone(tesserine.KernelSet.from_bytes(self.bytes).path)

    def test_ops_describe_themselves(self):
        manifest = kernel_set.manifest()
        m, n = kernel_set.dim(0), kernel_set.dim(1)
        extents = [m, [{"int": 2}, {"dim": 1}, {"op": "mul"}]]
        manifest["ops"] = [
            {
                "name": "activated<f16>",
                "source": "by/hand.tess",
                "source_hash": "",
                "signature": {
                    "dims": ["m", "n"],
                    "params": [kernel_set.view("out", "f16", "write", [m, n])],
                },
                "workspaces": [{"name": "both", "dtype": "f16", "extents": extents}],
                "steps": [
                    {
                        "instance": 1,
                        "args": [
                            {"view": {"base": {"workspace": 0}}},
                            {"view": {"base": {"param": 0}}},
                        ],
                    }
                ],
            }
        ]
        kernels = tesserine.KernelSet.from_bytes(kernel_set.write(manifest))
        self.assertEqual(kernels.ops, ["activated<f16>"])
        op = kernels.op("activated <f16>")
        self.assertEqual((op.name, op.source, op.launches), ("activated<f16>", "by/hand.tess", ["silu_and_mul<f16>"]))
        self.assertEqual([p.name for p in op.parameters], ["out"])
        self.assertEqual(op.workspace_size(m=3, n=100), 1280)
        self.assertEqual(op.workspace_size({"m": 3}, n=0), 0)
        with self.assertRaises(tesserine.ArgumentError) as caught:
            op.workspace_size(m=3)
        self.assertIn("`n`", str(caught.exception))
        with self.assertRaises(tesserine.NoKernelError):
            kernels.op("activated<bf16>")

    def test_spellings_of_a_name_share_the_kernel(self):
        kernels = tesserine.KernelSet.from_bytes(self.bytes)
        kernel = kernels.kernel("rmsnorm<bf16>")
        self.assertIs(kernels.kernel(" rmsnorm <bf16>"), kernel)
        self.assertIs(kernels["rmsnorm<bf16>"], kernel)

    def test_kernels_describe_themselves(self):
        kernels = tesserine.KernelSet.from_bytes(self.bytes)
        kernel = kernels.kernel("rmsnorm<bf16>")
        self.assertEqual(kernel.name, "rmsnorm<bf16>")
        self.assertEqual(kernel.source, "by/hand.tess")
        self.assertEqual(kernel.targets, ["sm_75"])
        self.assertEqual(
            repr(kernel), "rmsnorm<bf16>(x: bf16[m, n], weight: bf16[n], out: out bf16[m, n], eps: f32)"
        )
        x, _, out, eps = kernel.parameters
        self.assertEqual((x.name, x.kind, x.dtype, x.shape, x.access), ("x", "tensor", "bf16", ["m", "n"], "read"))
        self.assertEqual((out.access, out.optional), ("write", False))
        self.assertEqual((eps.kind, eps.dtype, eps.shape, eps.access), ("number", "f32", [], None))
        self.assertEqual(
            repr(kernels.kernel("mixed")),
            "mixed(a: e4m3[n, k], scale?: ue8m0[n], packed?: e2m1[n, k], flags?: mut bool[k], count: i32 = 3, "
            "causal: bool = 0, epi.alpha: f32 = 1, stream: f32 = 0.5)",
        )
        self.assertEqual(kernels.kernel("silu_and_mul<f16>").parameters[0].shape, ["m", "2 * d"])

    def test_an_unknown_kernel_is_named_and_the_others_listed(self):
        kernels = tesserine.KernelSet.from_bytes(self.bytes)
        with self.assertRaises(tesserine.NoKernelError) as caught:
            kernels.kernel("softmax<f16>")
        self.assertIsInstance(caught.exception, LookupError)
        self.assertEqual(
            str(caught.exception),
            "kernel set `by-hand` has no kernel `softmax<f16>`; it has `rmsnorm<bf16>`, `silu_and_mul<f16>` and `mixed`",
        )
        with self.assertRaises(tesserine.NoKernelError):
            kernels.launch("softmax<f16>")

    def test_a_missing_file_is_named(self):
        with self.assertRaises(tesserine.SetError) as caught:
            tesserine.KernelSet(self.folder / "gone.tset")
        self.assertIn("gone.tset", str(caught.exception))
        self.assertIsInstance(caught.exception, ValueError)
        self.assertIsInstance(caught.exception, tesserine.Error)

    def test_no_path_is_a_type_error(self):
        with self.assertRaises(TypeError):
            tesserine.KernelSet(3)

    def test_what_is_no_set_or_a_damaged_one_is_refused(self):
        self.assertIn("this is no kernel set", self.refused(b"\x7fELF" + bytes(100)))
        self.assertIn("cut short", self.refused(self.bytes[:-1]))
        self.assertIn("cut short", self.refused(self.bytes[:40]))
        self.assertIn("1 bytes too many", self.refused(self.bytes + b"\0"))
        flipped = bytearray(self.bytes)
        flipped[80] ^= 1
        self.assertIn("the manifest is damaged", self.refused(bytes(flipped)))

    def test_a_newer_format_is_refused_with_both_versions(self):
        message = self.refused(kernel_set.write(kernel_set.manifest(), version=3))
        self.assertIn("format version 3, and this program reads up to 2", message)

    def test_a_manifest_that_makes_no_sense_is_refused(self):
        manifest = kernel_set.manifest()
        manifest["instances"][0]["bodies"][0]["ptx"] = 7
        self.assertIn("rmsnorm<bf16>", self.refused(kernel_set.write(manifest)))

    def test_sets_are_found_where_the_variable_says(self):
        good = self.write("good.tset", self.bytes)
        self.write("bad.tset", b"")
        before = os.environ.get("TESSERINE_SETS")
        self.addCleanup(lambda: os.environ.pop("TESSERINE_SETS") if before is None else os.environ.update(TESSERINE_SETS=before))
        os.environ["TESSERINE_SETS"] = str(self.folder)
        found = tesserine.find_sets()
        self.assertIn(good, found)
        self.assertNotIn(self.folder / "bad.tset", found)

    def test_exceptions_survive_pickling(self):
        error = tesserine.ArgumentError("`k`: `x` is missing", "k", "x")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.kernel, again.argument), ("`k`: `x` is missing", "k", "x"))


if __name__ == "__main__":
    unittest.main()
