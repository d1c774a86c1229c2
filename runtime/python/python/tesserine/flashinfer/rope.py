"""Rotary embedding of queries and keys ``[tokens, heads, dim]`` of f16 or bf16, any strides of tokens and heads.

Pair c of the ``rotary_dim`` first columns turns by ``position / rope_scale * rope_theta ** (-2c / rotary_dim)``: columns c and
c + rotary_dim / 2, or neighbours where ``interleave`` (not ``is_neox``). Angles of positions are exact at any position.
``enable_pdl`` and ``backend`` change nothing.
"""

from __future__ import annotations

import math
from typing import Any

from . import _launch
from .page import pages

_CALLED = {"pos.ids": "pos_ids", "pos.indptr": "indptr", "pos.offsets": "offsets"}
_CACHE = {"pos.ids": "positions", "q": "query", "k": "key", "angles.rows": "cos_sin_cache"}


def apply_rope_inplace(
    q: Any,
    k: Any,
    indptr: Any,
    offsets: Any,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> None:
    """Token j of request i, ``indptr[i] + j``, is at position ``offsets[i] + j``."""
    _turn("apply_rope_inplace", True, q, k, _ragged(indptr, offsets), _plain(rope_scale, rope_theta), rotary_dim, interleave)


def apply_rope(
    q: Any,
    k: Any,
    indptr: Any,
    offsets: Any,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> tuple[Any, Any]:
    """As ``apply_rope_inplace``, into new tensors."""
    return _turn("apply_rope", False, q, k, _ragged(indptr, offsets), _plain(rope_scale, rope_theta), rotary_dim, interleave)


def apply_rope_pos_ids_inplace(
    q: Any,
    k: Any,
    pos_ids: Any,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> None:
    """Token i is at position ``pos_ids[i]``."""
    _turn("apply_rope_pos_ids_inplace", True, q, k, _given(_launch.cast(pos_ids, "int32")), _plain(rope_scale, rope_theta), rotary_dim, interleave)


def apply_rope_pos_ids(
    q: Any,
    k: Any,
    pos_ids: Any,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> tuple[Any, Any]:
    """As ``apply_rope_pos_ids_inplace``, into new tensors."""
    return _turn("apply_rope_pos_ids", False, q, k, _given(_launch.cast(pos_ids, "int32")), _plain(rope_scale, rope_theta), rotary_dim, interleave)


def apply_llama31_rope_inplace(
    q: Any,
    k: Any,
    indptr: Any,
    offsets: Any,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> None:
    """As ``apply_rope_inplace``, where only pairs that turn slowly are scaled, as in Llama 3.1."""
    angles = _llama31(rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    _turn("apply_llama31_rope_inplace", True, q, k, _ragged(indptr, offsets), angles, rotary_dim, interleave)


def apply_llama31_rope(
    q: Any,
    k: Any,
    indptr: Any,
    offsets: Any,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> tuple[Any, Any]:
    """As ``apply_llama31_rope_inplace``, into new tensors."""
    angles = _llama31(rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    return _turn("apply_llama31_rope", False, q, k, _ragged(indptr, offsets), angles, rotary_dim, interleave)


def apply_llama31_rope_pos_ids_inplace(
    q: Any,
    k: Any,
    pos_ids: Any,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> None:
    """As ``apply_llama31_rope_inplace``, with token i at position ``pos_ids[i]``."""
    angles = _llama31(rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    _turn("apply_llama31_rope_pos_ids_inplace", True, q, k, _given(_launch.cast(pos_ids, "int32")), angles, rotary_dim, interleave)


def apply_llama31_rope_pos_ids(
    q: Any,
    k: Any,
    pos_ids: Any,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> tuple[Any, Any]:
    """As ``apply_llama31_rope_pos_ids_inplace``, into new tensors."""
    angles = _llama31(rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    return _turn("apply_llama31_rope_pos_ids", False, q, k, _given(_launch.cast(pos_ids, "int32")), angles, rotary_dim, interleave)


def apply_rope_with_cos_sin_cache_inplace(
    positions: Any, query: Any, key: Any, head_size: int, cos_sin_cache: Any, is_neox: bool = True
) -> None:
    """Rows ``[tokens, heads * head_size]``, turned by row ``positions[i]`` of ``[cosines, sines]`` in f32."""
    function = "apply_rope_with_cos_sin_cache_inplace"
    q, k = (_heads(function, name, x, head_size) for name, x in (("query", query), ("key", key)))
    rotary = cos_sin_cache.shape[-1]
    _turn(function, True, q, k, _given(positions), _table(cos_sin_cache), rotary, not is_neox, _CACHE)


def apply_rope_with_cos_sin_cache(
    positions: Any, query: Any, key: Any, head_size: int, cos_sin_cache: Any, is_neox: bool = True
) -> tuple[Any, Any]:
    """As ``apply_rope_with_cos_sin_cache_inplace``, into new tensors."""
    function = "apply_rope_with_cos_sin_cache"
    q, k = (_heads(function, name, x, head_size) for name, x in (("query", query), ("key", key)))
    rotary = cos_sin_cache.shape[-1]
    q, k = _turn(function, False, q, k, _given(positions), _table(cos_sin_cache), rotary, not is_neox, _CACHE)
    return q.reshape(query.shape), k.reshape(key.shape)


def mla_rope_quantize_fp8(
    q_rope: Any,
    k_rope: Any,
    q_nope: Any,
    k_nope: Any,
    cos_sin_cache: Any,
    pos_ids: Any,
    is_neox: bool = True,
    quantize_dtype: Any = None,
    quant_scale_q: float = 1.0,
    quant_scale_kv: float = 1.0,
    q_rope_out: Any = None,
    k_rope_out: Any = None,
    q_nope_out: Any = None,
    k_nope_out: Any = None,
    enable_pdl: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """``rope_quantize_fp8`` of latent attention: keys are ``[tokens, dim]``."""
    outs = (q_rope_out, k_rope_out, q_nope_out, k_nope_out)
    return rope_quantize_fp8(
        q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox, quantize_dtype, quant_scale_q, quant_scale_kv, *outs
    )


def rope_quantize_fp8(
    q_rope: Any,
    k_rope: Any,
    q_nope: Any,
    k_nope: Any,
    cos_sin_cache: Any,
    pos_ids: Any,
    is_neox: bool = True,
    quantize_dtype: Any = None,
    quant_scale_q: float = 1.0,
    quant_scale_kv: float = 1.0,
    q_rope_out: Any = None,
    k_rope_out: Any = None,
    q_nope_out: Any = None,
    k_nope_out: Any = None,
    enable_pdl: bool = False,
    backend: str = "cuda",
) -> tuple[Any, Any, Any, Any]:
    """Turns ``q_rope`` and ``k_rope``, and stores all times their scales in fp8; keys may be without heads."""
    function = "rope_quantize_fp8"
    _launch.backend(function, backend)
    q_nope = q_rope[..., :0] if q_nope is None else q_nope
    k_nope = k_rope[..., :0] if k_nope is None else k_nope
    given = [out for out in (q_rope_out, k_rope_out, q_nope_out, k_nope_out) if out is not None]
    dtype = _fp8(q_rope, quantize_dtype, given)
    outs = []
    for out, x in zip((q_rope_out, k_rope_out, q_nope_out, k_nope_out), (q_rope, k_rope, q_nope, k_nope)):
        outs.append(_launch.empty(x, x.shape, dtype) if out is None else out)
    values = {
        "q": q_rope,
        "k": _with_heads(k_rope),
        "q_rest": q_nope,
        "k_rest": _with_heads(k_nope),
        "q_out": outs[0],
        "k_out": _with_heads(outs[1]),
        "q_rest_out": outs[2],
        "k_rest_out": _with_heads(outs[3]),
    }
    kernel, positions = _kernel("rope", q_rope, _to(dtype), _given(pos_ids), "", not is_neox)
    called = _CALLED | {"angles.rows": "cos_sin_cache", "q": "q_rope", "k": "k_rope", "q_rest": "q_nope", "k_rest": "k_nope"}
    called |= {"q_out": "q_rope_out", "k_out": "k_rope_out", "q_rest_out": "q_nope_out", "k_rest_out": "k_nope_out"}
    scales = {"q_scale": quant_scale_q, "k_scale": quant_scale_kv}
    _launch.launch(function, kernel, called, **values, **positions, **_table(cos_sin_cache)[1], **scales)
    return tuple(outs)


def rope_quantize_fp8_append_paged_kv_cache(
    q_rope: Any,
    k_rope: Any,
    q_nope: Any,
    k_nope: Any,
    v: Any,
    cos_sin_cache: Any,
    pos_ids: Any,
    paged_kv_cache: tuple[Any, Any],
    kv_indices: Any,
    kv_indptr: Any,
    batch_indices: Any,
    positions: Any,
    is_neox: bool = True,
    quantize_dtype: Any = None,
    quant_scale_q: float = 1.0,
    quant_scale_kv: float = 1.0,
    page_size: int = 16,
    kv_layout: str = "NHD",
    q_rope_out: Any = None,
    q_nope_out: Any = None,
    enable_pdl: bool = False,
) -> tuple[Any, Any]:
    """``rope_quantize_fp8`` whose keys, and ``v``, go to the pages: turned columns, then the others; or (no ``v``) to the
    caches of latent attention, ``(nope, rope)``."""
    function = "rope_quantize_fp8_append_paged_kv_cache"
    q_nope = q_rope[..., :0] if q_nope is None else q_nope
    k_nope = k_rope[..., :0] if k_nope is None else k_nope
    dtype = _fp8(q_rope, quantize_dtype, [out for out in (q_rope_out, q_nope_out) if out is not None])
    q_rope_out = _launch.empty(q_rope, q_rope.shape, dtype) if q_rope_out is None else q_rope_out
    q_nope_out = _launch.empty(q_nope, q_nope.shape, dtype) if q_nope_out is None else q_nope_out
    latent = len(k_rope.shape) == 2
    if latent != (v is None):
        reason = "is given, and keys have no heads" if latent else "is missing"
        raise _launch.argument(function, "v", reason)
    if latent:
        rest, turned = (cache[:, :, None] for cache in paged_kv_cache)
        values, value = turned[:, :, :0], _with_heads(k_rope)[:, :0]
    else:
        keys, values = pages(function, paged_kv_cache, kv_layout)
        width = k_rope.shape[-1]
        turned, rest, value = keys[..., :width], keys[..., width:], v
    if turned.shape[1] != page_size:
        raise _launch.argument(function, "page_size", f"is {page_size}, and pages of the cache have {turned.shape[1]} rows")
    kernel, where = _kernel("rope_quantize_append", q_rope, _to(dtype), _given(pos_ids), "", not is_neox)
    called = _CALLED | {"angles.rows": "cos_sin_cache", "q": "q_rope", "k": "k_rope", "q_rest": "q_nope", "k_rest": "k_nope"}
    called |= {"q_out": "q_rope_out", "q_rest_out": "q_nope_out", "request": "batch_indices", "at": "positions"}
    called |= {"page_indptr": "kv_indptr", "page_ids": "kv_indices"}
    called |= {name: "paged_kv_cache" for name in ("k_cache", "k_rest_cache", "v_cache")}
    _launch.launch(
        function,
        kernel,
        called,
        q=q_rope,
        k=_with_heads(k_rope),
        q_rest=q_nope,
        k_rest=_with_heads(k_nope),
        v=value,
        q_out=q_rope_out,
        q_rest_out=q_nope_out,
        k_cache=turned,
        k_rest_cache=rest,
        v_cache=values,
        request=_launch.cast(batch_indices, "int32"),
        at=_launch.cast(positions, "int32"),
        page_indptr=_launch.cast(kv_indptr, "int32"),
        page_ids=_launch.cast(kv_indices, "int32"),
        q_scale=quant_scale_q,
        k_scale=quant_scale_kv,
        v_scale=quant_scale_kv,
        **where,
        **_table(cos_sin_cache)[1],
    )
    return q_rope_out, q_nope_out


# Positions and angles are variants of the kernels: their names between the angle brackets, and their fields.
_Variant = tuple[str, dict[str, Any]]


def _ragged(indptr: Any, offsets: Any) -> _Variant:
    fields = {"pos.indptr": _launch.cast(indptr, "int32"), "pos.offsets": _launch.cast(offsets, "int32")}
    return ", P = Ragged", fields


def _given(ids: Any) -> _Variant:
    return ", P = Given<i64>" if _launch.type_name(ids) == "i64" else "", {"pos.ids": ids}


def _plain(scale: float, theta: float) -> _Variant:
    return _llama31(scale, theta, 1, 4, 0)


def _llama31(scale: float, theta: float, low: float, high: float, old_len: float) -> _Variant:
    fields = {"log2_theta": math.log2(theta), "factor": scale, "low": low, "high": high, "old_len": old_len}
    return ", A = Theta", {f"angles.{name}": value for name, value in fields.items()}


def _table(cache: Any) -> _Variant:
    return "", {"angles.rows": cache}


def _kernel(base: str, x: Any, to: str, positions: _Variant, angles: str, interleave: bool) -> _Variant:
    order = ", NEOX = false" if interleave else ""
    return f"{base}<{_launch.type_name(x)}{to}{positions[0]}{angles}{order}>", positions[1]


def _turn(
    function: str,
    in_place: bool,
    q: Any,
    k: Any,
    positions: _Variant,
    angles: _Variant,
    rotary_dim: int | None,
    interleave: bool,
    called: dict[str, str] = _CALLED,
) -> Any:
    _launch.rank(function, called.get("q", "q"), q, 3)
    _launch.rank(function, called.get("k", "k"), k, 3)
    width = q.shape[-1] if rotary_dim is None else rotary_dim
    if width % 2 or width > q.shape[-1]:
        raise _launch.argument(function, "rotary_dim", f"is {width}, and an even number up to {q.shape[-1]} is wanted")
    values = {"q": q[..., :width], "k": k[..., :width]}
    if in_place:
        kernel, fields = _kernel("rope_inplace", q, "", positions, angles[0], interleave)
        _launch.launch(function, kernel, called, **values, **fields, **angles[1])
        return None
    outs = [_launch.empty(x, x.shape) for x in (q, k)]
    for name, x, out in zip("qk", (q, k), outs):
        values[f"{name}_rest"] = x[..., width:]
        values[f"{name}_out"] = out[..., :width]
        values[f"{name}_rest_out"] = out[..., width:]
    kernel, fields = _kernel("rope", q, f", {_launch.type_name(q)}", positions, angles[0], interleave)
    _launch.launch(function, kernel, called, **values, **fields, **angles[1])
    return tuple(outs)


def _heads(function: str, name: str, x: Any, head_size: int) -> Any:
    """Rows as heads."""
    _launch.rank(function, name, x, 2)
    if x.shape[1] % head_size:
        raise _launch.argument(function, name, f"has rows of {x.shape[1]} elements, and a head is {head_size}")
    return x.reshape(x.shape[0], x.shape[1] // head_size, head_size)


def _with_heads(x: Any) -> Any:
    return x[:, None] if len(x.shape) == 2 else x


def _fp8(like: Any, dtype: Any, outs: list[Any]) -> str:
    """The type of codes, as frameworks name it."""
    wanted = dtype if dtype is not None else (outs[0].dtype if outs else None)
    if wanted is None:
        return "float8_e4m3fn" if hasattr(like, "new_empty") else "uint8"
    return {"e5m2": "float8_e5m2", "u8": "uint8"}.get(_launch.dtype_name(wanted), "float8_e4m3fn")


def _to(dtype: str) -> str:
    return ", e5m2" if dtype == "float8_e5m2" else ", e4m3"
