"""Tesserine as a candidate of ``bench.py``: a function for every operator that has kernels.

The set is ``$TESSERINE_SET``, else ``target/sets/peers.tset`` of this source tree, which ``tess build tests/peers/set.toml`` makes.
What a set does not hold is left out.
"""
import functools
import os
import pathlib

import tesserine
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
SET = tesserine.KernelSet(os.environ.get("TESSERINE_SET") or ROOT / "target/sets/peers.tset")

# Rows of queries that a block of attention takes.
ROWS = 128


@functools.lru_cache(None)
def kernel(name):
    return SET.kernel(name)


def _operator(name, **renamed):
    """The kernel ``name``, its parameters under the operator's names where these differ."""

    def call(**args):
        kernel(name)(**{renamed.get(k, k): v for k, v in args.items()})

    return call


rmsnorm = _operator("rmsnorm<bf16>")
fused_add_rmsnorm = _operator("fused_add_rmsnorm<bf16>")
layernorm = _operator("layernorm<bf16>")
silu_and_mul = _operator("silu_and_mul<bf16>")
gelu_tanh_and_mul = _operator("gelu_tanh_and_mul<bf16>")
softmax = _operator("softmax<bf16>", out="y")
rope_inplace = _operator("rope_inplace<bf16, P = Given<i64> >", positions="pos.ids", cos_sin_cache="angles.rows")


def rope_append(positions, cos_sin_cache, kv_last_page_len, page_size, **args):
    renamed = {"batch_idx": "request", "pos_in_req": "at", "kv_indptr": "page_indptr", "kv_indices": "page_ids"}
    renamed |= {"k_pages": "k_cache", "v_pages": "v_cache"}
    tensors = {renamed.get(name, name): tensor for name, tensor in args.items()}
    kernel("rope_append<bf16, P = Given<i64> >")({"pos.ids": positions, "angles.rows": cos_sin_cache} | tensors)


@functools.lru_cache(None)
def _none(dtype, device):
    return torch.empty(0, dtype=dtype, device=device)


def _sampler(**filters):
    """Draws from what a filter leaves; the workspace is the one of the op, kept from call to call."""

    def call(probs, seed, offset, out, **values):
        op = _op("sample")
        device = probs.device
        given = {filters[name]: value for name, value in values.items()}
        absent = {"row_of": torch.int32, "temperature": torch.float32, "k": torch.int32, "p": torch.float32, "min_p": torch.float32}
        absent |= {"seed": torch.int64, "offset": torch.int64}
        absent = {name: _none(dtype, device) for name, dtype in absent.items()}
        tensors = absent | {"x": probs, "ids": out.view(-1, 1)}
        size = op.workspace_size(batch=probs.shape[0])
        op(tensors | given | {"seed_all": seed, "offset_all": offset}, workspace=_workspace(size, device))

    return call


@functools.lru_cache(None)
def _op(name):
    return SET.op(name)


@functools.lru_cache(None)
def _workspace(size, device):
    memory = torch.empty(size + 256, dtype=torch.uint8, device=device)
    return tesserine.Workspace(memory[-memory.data_ptr() % 256 :][:size])


top_p_sample = _sampler(top_p="p_all")
top_k_sample = _sampler(top_k="k_all")
top_k_top_p_sample = _sampler(top_k="k_all", top_p="p_all")
min_p_sample = _sampler(min_p="min_p_all")
gemm_bf16 = _operator("gemm_nt<bf16>", out="c")


def top_k(x, k, sorted, values, ids):
    dtype = "f32" if x.dtype == torch.float32 else "bf16"
    op = _op(f"top_k<{dtype}, S = {256 if k <= 256 else 2048}>" if sorted else f"top_k<{dtype}>")
    size = op.workspace_size(b=x.shape[0], v=x.shape[1], k=k)
    tensors = {"x": x, "len": _none(torch.int32, x.device), "vals": values, "ids": ids}
    op(tensors, workspace=_workspace(size, x.device))


def gemm_fp8_tensor(a, b, scale_a, scale_b, out):
    kernel("gemm_nt<e4m3, E = Scale>")(a=a, b=b, c=out, **{"epi.a": scale_a, "epi.b": scale_b})


def gemm_fp8_row(a, b, scale_a, scale_b, out):
    scales = {"epi.a": scale_a.view(-1), "epi.b": scale_b.view(-1)}
    kernel("gemm_nt<e4m3, E = ScaleRows>")(a=a, b=b, c=out, **scales)


@functools.lru_cache(64)
def _columns(scales):
    return scales.t().contiguous()


def gemm_fp8_block(a, b, scale_a, scale_b, out):
    """The scales of A column by column, as the peers are given them: made once for each tensor."""
    kernel("gemm_fp8_block<bf16, COLUMNS = true>")(a=a, sa=_columns(scale_a), b=b, sb=scale_b, c=out)


def gemm_fp8_block__rows(a, b, scale_a, scale_b, out):
    """The scales of A as they come."""
    kernel("gemm_fp8_block<bf16>")(a=a, sa=scale_a, b=b, sb=scale_b, c=out)


def grouped_gemm_bf16_plan(offs, **args):
    return torch.cat([torch.zeros_like(offs[:1]), offs])


def grouped_gemm_bf16(plan, a, b, offs, row_expert, out):
    kernel(f"grouped_gemm<bf16, E = {b.shape[0]}>")(a=a, b=b, m_indptr=plan, c=out)


def attn_prefill_plan(q, k, cu_q, cu_kv, causal, **args):
    """The tiles request by request, those with the most keys first: a request's keys stay in the L2 while its tiles run."""
    work = []
    starts = cu_q.tolist()
    for request, (first, end) in enumerate(zip(starts, starts[1:])):
        tiles = range((end - first + ROWS - 1) // ROWS)
        work += [[request, tile] for tile in reversed(tiles)]
    return torch.tensor(work, dtype=torch.int32, device=q.device)


def attn_prefill(plan, q, k, v, cu_q, cu_kv, causal, sm_scale, max_len, out):
    groups, width = q.shape[1] // k.shape[1], q.shape[2]
    name = f"prefill<bf16, DQ = {width}, DV = {width}"
    name += f", G = {groups}" if groups > 1 else ""
    name += "" if causal else ", CAUSAL = false"
    kernel(name + ">")(q=q, k=k, v=v, q_indptr=cu_q, kv_indptr=cu_kv, work=plan, o=out, scale=sm_scale)
