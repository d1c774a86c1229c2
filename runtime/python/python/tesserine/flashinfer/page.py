"""Paged caches of keys and values: ``[pages, 2, page_size, heads, dim]`` or a pair without the 2 (``"NHD"``), with heads before
rows of a page in ``"HND"``; any strides."""

from __future__ import annotations

from typing import Any

from . import _launch

_CALLED = {
    "k": "append_key",
    "v": "append_value",
    "k_cache": "paged_kv_cache",
    "v_cache": "paged_kv_cache",
    "ckv": "append_ckv",
    "kpe": "append_kpe",
    "request": "batch_indices",
    "at": "positions",
    "page_indptr": "kv_indptr",
    "page_ids": "kv_indices",
}


def append_paged_kv_cache(
    append_key: Any,
    append_value: Any,
    batch_indices: Any,
    positions: Any,
    paged_kv_cache: Any,
    kv_indices: Any,
    kv_indptr: Any,
    kv_last_page_len: Any,
    kv_layout: str = "NHD",
) -> None:
    """Stores key and value i at position ``positions[i]`` of request ``batch_indices[i]``; nowhere for request −1."""
    function = "append_paged_kv_cache"
    keys, values = pages(function, paged_kv_cache, kv_layout)
    rows = {"k": append_key, "v": append_value, "k_cache": keys, "v_cache": values}
    _append(function, _CALLED, rows, batch_indices, positions, kv_indptr, kv_indices)


def append_paged_mla_kv_cache(
    append_ckv: Any,
    append_kpe: Any,
    batch_indices: Any,
    positions: Any,
    ckv_cache: Any,
    kpe_cache: Any,
    kv_indices: Any,
    kv_indptr: Any,
    kv_last_page_len: Any,
) -> None:
    """As ``append_paged_kv_cache``, to the caches of latent attention ``[pages, page_size, dim]``."""
    function = "append_paged_mla_kv_cache"
    if ckv_cache is None or kpe_cache is None:
        missing = "ckv_cache" if ckv_cache is None else "kpe_cache"
        raise NotImplementedError(f"`{function}`: both caches are stored to, and `{missing}` is missing")
    called = _CALLED | {"k": "append_ckv", "v": "append_kpe", "k_cache": "ckv_cache", "v_cache": "kpe_cache"}
    rows = {"k": append_ckv[:, None], "v": append_kpe[:, None]}
    rows |= {"k_cache": ckv_cache[:, :, None], "v_cache": kpe_cache[:, :, None]}
    _append(function, called, rows, batch_indices, positions, kv_indptr, kv_indices)


def nvfp4_quantize_append_paged_kv_cache(
    append_key: Any,
    append_value: Any,
    batch_indices: Any,
    positions: Any,
    paged_kv_cache: Any,
    kv_cache_sf: Any,
    kv_indices: Any,
    kv_indptr: Any,
    kv_last_page_len: Any,
    k_scale: float,
    v_scale: float,
    kv_layout: str = "NHD",
) -> None:
    """As ``append_paged_kv_cache``, to caches of e2m1, two columns a byte, with a scale (e4m3) for each 16 columns in
    ``kv_cache_sf``: a number is code times scale times ``k_scale`` or ``v_scale``."""
    function = "nvfp4_quantize_append_paged_kv_cache"
    for name, value in (("k_scale", k_scale), ("v_scale", v_scale)):
        if not 0 < value < float("inf"):
            raise _launch.argument(function, name, f"is {value}, and a positive number is wanted")
    keys, values = pages(function, paged_kv_cache, kv_layout)
    key_scales, value_scales = pages(function, kv_cache_sf, kv_layout, "kv_cache_sf")
    called = _CALLED | {"k_scales": "kv_cache_sf", "v_scales": "kv_cache_sf"}
    rows = {"k": append_key, "v": append_value, "k_cache": keys, "v_cache": values}
    kernel = f"append_nvfp4<{_launch.type_name(append_key)}>"
    scales = {"k_scales": key_scales, "v_scales": value_scales, "k_scale": k_scale, "v_scale": v_scale}
    places = _places(batch_indices, positions, kv_indptr, kv_indices)
    _launch.launch(function, kernel, called, **rows, **scales, **places)


def get_batch_indices_positions(
    append_indptr: Any, seq_lens: Any, nnz: int, batch_indices: Any = None, positions: Any = None
) -> tuple[Any, Any]:
    """Each new token's request and position, the last token of request i at ``seq_lens[i] - 1``; −1 and 0 for tokens of nobody."""
    function = "get_batch_indices_positions"
    batch_indices = _launch.empty(append_indptr, (nnz,), "int32") if batch_indices is None else batch_indices
    positions = _launch.empty(append_indptr, (nnz,), "int32") if positions is None else positions
    _launch.launch(
        function,
        "batch_positions",
        {"indptr": "append_indptr", "request": "batch_indices", "at": "positions"},
        indptr=_launch.cast(append_indptr, "int32"),
        seq_lens=_launch.cast(seq_lens, "int32"),
        request=batch_indices,
        at=positions,
    )
    return batch_indices, positions


def get_seq_lens(kv_indptr: Any, kv_last_page_len: Any, page_size: int) -> Any:
    """Tokens of each request: its pages but the last are full. A request without pages has ``kv_last_page_len`` tokens."""
    lens = _launch.empty(kv_indptr, kv_last_page_len.shape, "int32")
    _launch.launch(
        "get_seq_lens",
        "seq_lens_of_pages",
        {"page_indptr": "kv_indptr", "last_page_len": "kv_last_page_len", "page": "page_size"},
        page_indptr=_launch.cast(kv_indptr, "int32"),
        last_page_len=_launch.cast(kv_last_page_len, "int32"),
        seq_lens=lens,
        page=page_size,
    )
    return lens


def pages(function: str, cache: Any, layout: str, name: str = "paged_kv_cache") -> tuple[Any, Any]:
    """Keys and values as ``[pages, page_size, heads, dim]``, of whatever strides."""
    if layout not in ("NHD", "HND"):
        raise _launch.argument(function, "kv_layout", f"is {layout!r}, and 'NHD' or 'HND' is wanted")
    if isinstance(cache, (tuple, list)):
        keys, values = cache
        for part in (keys, values):
            _launch.rank(function, name, part, 4)
    else:
        _launch.rank(function, name, cache, 5)
        if cache.shape[1] != 2:
            raise _launch.argument(function, name, f"has {cache.shape[1]} tensors a page, and keys and values are two")
        keys, values = cache[:, 0], cache[:, 1]
    return (keys.swapaxes(1, 2), values.swapaxes(1, 2)) if layout == "HND" else (keys, values)


def _append(
    function: str, called: dict[str, str], rows: dict[str, Any], requests: Any, positions: Any, indptr: Any, indices: Any
) -> None:
    kind = _launch.type_name(rows["k"])
    if kind in ("e4m3", "e5m2", "u8"):
        # Copied as they are: whatever has a byte.
        for name, tensor in rows.items():
            other = _launch.type_name(tensor)
            if other != kind:
                raise _launch.argument(function, called[name], f"has elements of {other}, and {kind} is wanted")
        rows = {name: _launch.bits(tensor, "uint8") for name, tensor in rows.items()}
        kind = "u8"
    _launch.launch(function, f"append<{kind}>", called, **rows, **_places(requests, positions, indptr, indices))


def _places(requests: Any, positions: Any, indptr: Any, indices: Any) -> dict[str, Any]:
    tensors = {"request": requests, "at": positions, "page_indptr": indptr, "page_ids": indices}
    return {name: _launch.cast(tensor, "int32") for name, tensor in tensors.items()}
