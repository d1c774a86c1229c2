"""Rows to 8 and 4 bits with the scales that belong to them, and back; packed bits.

Codes of 4 bits and scales are bytes (``uint8``), two codes to a byte, the first in the low half. Scales that are "swizzled" lie in
tiles of 128 rows by 4 columns, whose padding is stored too. ``enable_pdl`` and ``backend`` change nothing: there is one kernel.
"""

from __future__ import annotations

import enum
from typing import Any

from . import _launch


class SfLayout(enum.Enum):
    """Where scales lie: row by row, or in tiles of 128 rows by 4 columns. Tiles of 8 rows are not supported."""

    layout_128x4 = 0
    layout_8x4 = 1
    layout_linear = 2


def packbits(x: Any, bitorder: str = "big") -> Any:
    """The bits ``x != 0``, eight to a byte: the first the highest, or the lowest (``"little"``)."""
    _launch.rank("packbits", "x", x, 1)
    y = _launch.empty(x, ((x.shape[0] + 7) // 8,), "uint8")
    _launch.launch("packbits", "packbits" + _order("packbits", bitorder), {}, x=x, y=y)
    return y


def segment_packbits(x: Any, indptr: Any, bitorder: str = "big") -> tuple[Any, Any]:
    """As ``packbits``, segment by segment: segment i is ``x[indptr[i]:indptr[i + 1]]``, and begins a byte of its own.

    Returns the bytes, and where each segment's begin. How many there are is read from the device.
    """
    order = _order("segment_packbits", bitorder)
    lengths = (indptr[1:] - indptr[:-1] + 7) // 8
    packed = _launch.filled(indptr, indptr.shape, 0, "int32")
    packed[1:] = lengths.cumsum(0)
    y = _launch.empty(x, (int(packed[-1]),), "uint8")
    _launch.launch(
        "segment_packbits",
        "segment_packbits" + order,
        {"x_indptr": "indptr"},
        x=x,
        x_indptr=_launch.cast(indptr, "int32"),
        y_indptr=packed,
        y=y,
    )
    return y, packed


def _order(function: str, bitorder: str) -> str:
    if bitorder not in ("big", "little"):
        raise _launch.argument(function, "bitorder", f"is {bitorder!r}, and 'big' or 'little' is wanted")
    return "<LITTLE = true>" if bitorder == "little" else ""


def mxfp8_quantize(
    input: Any,
    is_sf_swizzled_layout: bool = True,
    alignment: int = 32,
    enable_pdl: bool | None = None,
    backend: str = "cuda",
    sf_swizzle_layout: SfLayout | None = None,
) -> tuple[Any, Any]:
    """e4m3 with a power of two for each 32 columns. Returns the codes, and the scales (ue8m0) as one row of bytes."""
    function = "mxfp8_quantize"
    _launch.backend(function, backend)
    if alignment != 32:
        raise NotImplementedError(f"`{function}`: rows are padded to 32 columns, not to {alignment}")
    layout = sf_swizzle_layout or (SfLayout.layout_128x4 if is_sf_swizzled_layout else SfLayout.layout_linear)
    tiled = _tiled(function, layout)
    codes = _launch.empty(input, input.shape, _fp8(input))
    scales = _quantise(function, "Mx", tiled, input, codes, 32, None)
    return codes, scales.reshape(-1)


def mxfp4_quantize(
    a: Any, backend: str = "cuda", enable_pdl: bool | None = None, sfLayout: SfLayout = SfLayout.layout_128x4
) -> tuple[Any, Any]:
    """e2m1 with a power of two for each 32 columns. Returns the codes and the scales (ue8m0)."""
    _launch.backend("mxfp4_quantize", backend)
    return _to_4_bits("mxfp4_quantize", "Mx", _tiled("mxfp4_quantize", sfLayout), a, 32, None)


def nvfp4_quantize(
    a: Any,
    a_global_sf: Any,
    sfLayout: SfLayout = SfLayout.layout_128x4,
    do_shuffle: bool = False,
    sf_vec_size: int = 16,
    enable_pdl: bool | None = None,
    backend: str = "cuda",
    per_token_activation: bool = False,
    expanded_idx_to_permuted_idx: Any = None,
) -> tuple[Any, Any]:
    """e2m1 with a scale (e4m3) for each 16 columns, all of which ``a_global_sf`` multiplies."""
    function = "nvfp4_quantize"
    _launch.backend(function, backend)
    if do_shuffle or per_token_activation or expanded_idx_to_permuted_idx is not None:
        raise NotImplementedError(f"`{function}`: rows stay in their order, with one scale for all")
    if sf_vec_size != 16:
        raise NotImplementedError(f"`{function}`: a scale is for 16 columns, not for {sf_vec_size}")
    return _to_4_bits(function, "Nvfp4", _tiled(function, sfLayout), a, 16, a_global_sf)


def fp4_quantize(
    input: Any,
    global_scale: Any = None,
    sf_vec_size: int = 16,
    sf_use_ue8m0: bool = False,
    is_sf_swizzled_layout: bool = True,
    is_sf_8x4_layout: bool = False,
    is_global_scale_inversed: bool = False,
    enable_pdl: bool | None = None,
    backend: str = "cuda",
) -> tuple[Any, Any]:
    """``nvfp4_quantize``, or ``mxfp4_quantize`` where ``sf_use_ue8m0`` and ``sf_vec_size`` is 32."""
    function = "fp4_quantize"
    _launch.backend(function, backend)
    if is_sf_8x4_layout:
        raise NotImplementedError(f"`{function}`: scales lie row by row or in tiles of 128 rows, not of 8")
    if (sf_vec_size, bool(sf_use_ue8m0)) not in ((16, False), (32, True)):
        raise NotImplementedError(f"`{function}`: scales are e4m3 for 16 columns or ue8m0 for 32")
    if sf_use_ue8m0:
        return _to_4_bits(function, "Mx", is_sf_swizzled_layout, input, 32, None)
    if global_scale is None:
        raise _launch.argument(function, "global_scale", "is missing")
    if is_global_scale_inversed:
        global_scale = 1 / global_scale
    return _to_4_bits(function, "Nvfp4", is_sf_swizzled_layout, input, 16, global_scale)


def per_token_group_quant_8bit(
    x: Any,
    group_size: int,
    eps: float = 1e-10,
    dst_dtype: Any = None,
    column_major_scales: bool = False,
    scale_tma_aligned: bool = False,
    scale_ue8m0: bool = False,
    backend: str = "cutile",
) -> tuple[Any, Any]:
    """e4m3 with a scale for each 128 columns, in f32. A group of zeros has the scale 0: ``eps`` is not needed."""
    function = "per_token_group_quant_8bit"
    _launch.backend(function, backend)
    if group_size != 128:
        raise NotImplementedError(f"`{function}`: a group is 128 columns, not {group_size}")
    if dst_dtype is not None and _launch.dtype_name(dst_dtype) != "e4m3":
        raise NotImplementedError(f"`{function}`: codes are e4m3")
    if scale_tma_aligned or scale_ue8m0:
        raise NotImplementedError(f"`{function}`: scales are f32 without padding")
    rows, groups = _rows(x), x.shape[-1] // 128
    codes = _launch.empty(x, x.shape, _fp8(x))
    scales = _launch.empty(x, (groups, rows) if column_major_scales else (rows, groups), "float32")
    scales = scales.T if column_major_scales else scales
    to = {"out.y": _launch.matrix(function, "x", codes), "out.scales": scales}
    kernel = f"quantise<{_launch.type_name(x)}, Q = PerGroup>"
    _launch.launch(function, kernel, {}, x=_launch.matrix(function, "x", x), **to)
    return codes, scales if len(x.shape) == 2 else scales.reshape((*x.shape[:-1], groups))


def _tiled(function: str, layout: SfLayout) -> bool:
    if SfLayout(layout) == SfLayout.layout_8x4:
        raise NotImplementedError(f"`{function}`: scales lie row by row or in tiles of 128 rows, not of 8")
    return SfLayout(layout) == SfLayout.layout_128x4


def _fp8(tensor: Any) -> str:
    """What e4m3 is in the tensor's framework."""
    return "float8_e4m3fn" if hasattr(tensor, "new_empty") else "uint8"


def _rows(tensor: Any) -> int:
    count = 1
    for extent in tensor.shape[:-1]:
        count *= extent
    return count


def _to_4_bits(function: str, kind: str, tiled: bool, x: Any, group: int, scale: Any) -> tuple[Any, Any]:
    codes = _launch.empty(x, (*x.shape[:-1], x.shape[-1] // 2), "uint8")
    return codes, _quantise(function, kind, tiled, x, codes, group, scale)


def _quantise(function: str, kind: str, tiled: bool, x: Any, codes: Any, group: int, scale: Any) -> Any:
    """Stores codes and gives the scales: a byte for each group, with the padding of tiles."""
    rows, columns = _rows(x), x.shape[-1] // group
    if x.shape[-1] % group:
        raise _launch.argument(function, "input", f"has rows of {x.shape[-1]} elements, and a group is {group}")
    variant = kind + ("Tiled" if tiled else "") + ("<e2m1>" if kind == "Mx" and codes.shape != x.shape else "")
    padded = (-(-rows // 128) * 128, -(-columns // 4) * 4) if tiled else (rows, columns)
    # The rows that fill up the last tile are nobody's.
    scales = _launch.filled(x, padded, 0, "uint8") if padded[0] != rows else _launch.empty(x, padded, "uint8")
    to = {"out.y": _launch.matrix(function, "x", codes), "out.scales": scales.reshape(-1) if tiled else scales}
    if scale is not None:
        to["out.global"] = _launch.scale(x, scale)
    kernel = f"quantise<{_launch.type_name(x)}, Q = {variant}>"
    _launch.launch(function, kernel, {}, x=_launch.matrix(function, "input", x), **to)
    return scales
