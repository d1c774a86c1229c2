"""The k largest of each row, ties by the lower id; always deterministic.

``deterministic`` and ``dsa_graph_safe`` change nothing, and ``tie_break`` may be ``NONE`` or ``SMALL``.
"""

from __future__ import annotations

import enum
from typing import Any

from . import _launch


class TopKTieBreak(enum.IntEnum):
    """Which of equal values at the threshold are taken."""

    NONE = 0
    SMALL = 1
    LARGE = 2


# How many values can be sorted on the device, by the kernels that there are.
_SORTED = (256, 2048)


def top_k(
    input: Any,
    k: int,
    sorted: bool = False,
    deterministic: bool = False,
    tie_break: int = TopKTieBreak.NONE,
    dsa_graph_safe: bool = False,
) -> tuple[Any, Any]:
    """The values and their ids (int64), in the order of the columns or of the values."""
    _ties("top_k", tie_break)
    _launch.rank("top_k", "input", input, 2)
    rows = input.shape[0]
    values = _launch.empty(input, (rows, k))
    ids = _launch.empty(input, (rows, k), "int64")
    kernel = f"top_k<{_launch.type_name(input)}{_size('top_k', k) if sorted else ''}, I = i64>"
    _launch.launch("top_k", kernel, {"x": "input"}, x=input, len=_launch.none(input, "int32"), vals=values, ids=ids)
    return values, ids


def top_k_page_table_transform(
    input: Any,
    src_page_table: Any,
    lengths: Any,
    k: int,
    row_to_batch: Any = None,
    deterministic: bool = False,
    tie_break: int = TopKTieBreak.NONE,
    dsa_graph_safe: bool = False,
    row_starts: Any = None,
    page_table_row_starts: Any = None,
    *,
    page_size: int = 1,
    out: Any = None,
    out_raw_indices: Any = None,
) -> Any:
    """The ids of the k largest of the ``lengths[i]`` of row i from column ``row_starts[i]`` on, through the row's page table; −1 behind.

    Id c is at ``table[i, start + c // page_size] * page_size + c % page_size``; ``out_raw_indices`` gets c. Row i has the table
    ``row_to_batch[i]``, or its own, from entry ``page_table_row_starts[i]`` on, or from ``row_starts[i]``.
    """
    function = "top_k_page_table_transform"
    _ties(function, tie_break)
    _launch.rank(function, "input", input, 2)
    if page_size < 1 or page_size & (page_size - 1):
        raise _launch.argument(function, "page_size", f"is {page_size}, and a power of two is wanted")
    if page_table_row_starts is None and row_starts is not None:
        if page_size != 1:
            raise _launch.argument(function, "page_table_row_starts", "is missing: `row_starts` counts ids, not pages")
        page_table_row_starts = row_starts
    if out is None:
        out = _launch.empty(input, (input.shape[0], k), "int32")
    each = {"lengths": lengths, "row_to_batch": row_to_batch, "row_starts": row_starts}
    _each(function, input, each | {"page_table_row_starts": page_table_row_starts})
    called = {"x": "input", "len": "lengths", "ids": "out", "start": "row_starts", "raw": "out_raw_indices"}
    called |= {"pages.table": "src_page_table", "pages.request": "row_to_batch", "pages.first": "page_table_row_starts"}
    none = _launch.none(input, "int32")
    pages = {
        "pages.table": src_page_table,
        "pages.request": none if row_to_batch is None else row_to_batch,
        "pages.first": none if page_table_row_starts is None else page_table_row_starts,
        "pages.page": page_size,
    }
    _launch.launch(
        function,
        f"top_k_page_table<{_launch.type_name(input)}{_starts(row_starts)}>",
        called | {"pages.page": "page_size"},
        x=input,
        start=none if row_starts is None else row_starts,
        len=lengths,
        ids=out,
        raw=_launch.empty(input, (0, k), "int32") if out_raw_indices is None else out_raw_indices,
        **pages,
    )
    return out


def top_k_ragged_transform(
    input: Any,
    offsets: Any,
    lengths: Any,
    k: int,
    deterministic: bool = False,
    tie_break: int = TopKTieBreak.NONE,
    dsa_graph_safe: bool = False,
    row_starts: Any = None,
) -> Any:
    """The ids of the k largest of the ``lengths[i]`` of row i from column ``row_starts[i]`` on, plus ``offsets[i]``; −1 behind."""
    function = "top_k_ragged_transform"
    _ties(function, tie_break)
    _launch.rank(function, "input", input, 2)
    _each(function, input, {"lengths": lengths, "offsets": offsets, "row_starts": row_starts})
    out = _launch.empty(input, (input.shape[0], k), "int32")
    _launch.launch(
        function,
        f"top_k_ragged<{_launch.type_name(input)}{_starts(row_starts)}>",
        {"x": "input", "len": "lengths", "start": "row_starts", "offset": "offsets"},
        x=input,
        start=_launch.none(input, "int32") if row_starts is None else row_starts,
        len=lengths,
        offset=offsets,
        ids=out,
    )
    return out


def _each(function: str, input: Any, tensors: dict[str, Any]) -> None:
    for name, tensor in tensors.items():
        if tensor is not None:
            _launch.each(function, name, tensor, input.shape[0])


def _starts(starts: Any) -> str:
    return "" if starts is None else ", STARTS = true"


def _ties(function: str, tie_break: int) -> None:
    if TopKTieBreak(tie_break) == TopKTieBreak.LARGE:
        raise NotImplementedError(f"`{function}`: of equal values those of lower ids are taken")


def _size(function: str, k: int) -> str:
    for size in _SORTED:
        if k <= size:
            return f", S = {size}"
    raise NotImplementedError(f"`{function}`: at most {_SORTED[-1]} values are sorted, not {k}")
