"""Tesserine as a candidate of ``bench.py``: a function for every operator that the default kernel set has.

The set is ``$TESSERINE_SET``, else ``target/sets/default.tset`` of this source tree.
"""
import os
import pathlib

import tesserine

ROOT = pathlib.Path(__file__).resolve().parents[2]
SET = tesserine.KernelSet(os.environ.get("TESSERINE_SET") or ROOT / "target/sets/default.tset")


def _operator(name, **renamed):
    """The bf16 kernel ``name``, its parameters under the operator's names where these differ."""
    kernel = SET.kernel(f"{name}<bf16>")

    def call(**args):
        kernel(**{renamed.get(k, k): v for k, v in args.items()})

    return call if renamed else kernel


rmsnorm = _operator("rmsnorm")
fused_add_rmsnorm = _operator("fused_add_rmsnorm")
layernorm = _operator("layernorm")
silu_and_mul = _operator("silu_and_mul")
gelu_tanh_and_mul = _operator("gelu_tanh_and_mul")
softmax = _operator("softmax", out="y")
gemm_bf16 = _operator("gemm_nt", out="c")
