"""Ids drawn from rows of probabilities or logits (f32), and the rows that they are drawn from.

Draws are deterministic: a row's id follows from the row, its seed and its offset. ``seed`` and ``offset`` are numbers, or tensors
(int64) with one of each for a row or for all; rows that share a seed draw independently. Without them they come from
``generator``, torch's by default, which moves on. The support is exact: of equal values at the threshold those of lower ids
are kept. A row that nothing can be drawn from gives −1, and ``return_valid`` says so.

``deterministic`` and ``enable_pdl`` change nothing.
"""

from __future__ import annotations

import sys
from typing import Any

from . import _launch


def softmax(logits: Any, temperature: Any = None, enable_pdl: bool | None = None) -> Any:
    """``softmax(logits / temperature)`` in f32; of temperature 0, one at the largest logit."""
    _launch.rank("softmax", "logits", logits, 2)
    out = _launch.empty(logits, logits.shape, "float32")
    kernel = f"softmax_temperature<{_launch.type_name(logits)}>"
    heat = 1.0 if temperature is None else temperature
    values = _one_or_each("softmax", logits, logits.shape[0], "temperature", heat, "float32", "temperature")
    _launch.launch("softmax", kernel, {"x": "logits"}, x=logits, y=out, **values)
    return out


def sampling_from_logits(
    logits: Any,
    indices: Any = None,
    deterministic: bool = True,
    generator: Any = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
) -> Any:
    """Ids drawn from ``softmax(logits)``."""
    return _draw("sampling_from_logits", "logits", logits, indices, generator, check_nan, seed, offset, False)


def sampling_from_probs(
    probs: Any,
    indices: Any = None,
    deterministic: bool = True,
    generator: Any = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
    return_valid: bool = False,
) -> Any:
    """Ids drawn in proportion to ``probs``."""
    return _draw("sampling_from_probs", "probs", probs, indices, generator, check_nan, seed, offset, return_valid)


def top_p_sampling_from_probs(
    probs: Any,
    top_p: Any,
    indices: Any = None,
    deterministic: bool = True,
    generator: Any = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
    return_valid: bool = False,
) -> Any:
    """Of the fewest largest probabilities whose sum is ``top_p`` or more."""
    function = "top_p_sampling_from_probs"
    return _draw(function, "probs", probs, indices, generator, check_nan, seed, offset, return_valid, top_p=top_p)


def top_k_sampling_from_probs(
    probs: Any,
    top_k: Any,
    indices: Any = None,
    deterministic: bool = True,
    generator: Any = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
    return_valid: bool = False,
) -> Any:
    """Of the ``top_k`` largest probabilities."""
    function = "top_k_sampling_from_probs"
    return _draw(function, "probs", probs, indices, generator, check_nan, seed, offset, return_valid, top_k=top_k)


def min_p_sampling_from_probs(
    probs: Any,
    min_p: Any,
    indices: Any = None,
    deterministic: bool = True,
    generator: Any = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
    return_valid: bool = False,
) -> Any:
    """Of the probabilities that are at least ``min_p`` times the largest."""
    function = "min_p_sampling_from_probs"
    return _draw(function, "probs", probs, indices, generator, check_nan, seed, offset, return_valid, min_p=min_p)


def top_k_top_p_sampling_from_logits(
    logits: Any,
    top_k: Any,
    top_p: Any,
    indices: Any = None,
    filter_apply_order: str = "top_k_first",
    deterministic: bool = True,
    generator: Any = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
) -> Any:
    """``top_k_top_p_sampling_from_probs`` of ``softmax(logits)``."""
    function = "top_k_top_p_sampling_from_logits"
    joint = _joint(function, filter_apply_order)
    filters = {"top_k": top_k, "top_p": top_p, "joint": joint}
    return _draw(function, "logits", logits, indices, generator, check_nan, seed, offset, False, **filters)


def top_k_top_p_sampling_from_probs(
    probs: Any,
    top_k: Any,
    top_p: Any,
    indices: Any = None,
    filter_apply_order: str = "top_k_first",
    deterministic: bool = True,
    generator: Any = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
    return_valid: bool = False,
) -> Any:
    """Of what both filters keep: top-p of what top-k leaves, renormalised (``"top_k_first"``), or of all (``"joint"``)."""
    function = "top_k_top_p_sampling_from_probs"
    joint = _joint(function, filter_apply_order)
    filters = {"top_k": top_k, "top_p": top_p, "joint": joint}
    return _draw(function, "probs", probs, indices, generator, check_nan, seed, offset, return_valid, **filters)


def top_p_renorm_probs(probs: Any, top_p: Any, is_deterministic: bool = False) -> Any:
    """The fewest largest probabilities whose sum is ``top_p`` or more, divided by their sum; 0 elsewhere."""
    return _filtered("top_p_renorm_probs", "top_p_renorm", "probs", probs, "top_p", top_p)


def top_k_renorm_probs(probs: Any, top_k: Any) -> Any:
    """The ``top_k`` largest probabilities, divided by their sum; 0 elsewhere."""
    return _filtered("top_k_renorm_probs", "top_k_renorm", "probs", probs, "top_k", top_k)


def top_k_mask_logits(logits: Any, top_k: Any) -> Any:
    """The ``top_k`` largest logits; −∞ elsewhere."""
    return _filtered("top_k_mask_logits", "top_k_mask", "logits", logits, "top_k", top_k)


# What filters are called in the kernels, and their types.
_FILTERS = {"top_k": ("k", "int32"), "top_p": ("p", "float32"), "min_p": ("min_p", "float32")}
_CALLED = {"k": "top_k", "k_all": "top_k", "p": "top_p", "p_all": "top_p", "row_of": "indices"}


def _joint(function: str, order: str) -> bool:
    if order not in ("top_k_first", "joint"):
        raise _launch.argument(function, "filter_apply_order", f"is {order!r}, and 'top_k_first' or 'joint' is wanted")
    return order == "joint"


def _one_or_each(function: str, like: Any, rows: int, name: str, value: Any, dtype: str, called: str) -> dict[str, Any]:
    """A parameter of all rows, ``NAME_all``, or one for each row, ``NAME``, which is then not empty."""
    if isinstance(value, (int, float)):
        return {f"{name}_all": value, name: _launch.none(like, dtype)}
    _launch.each(function, called, value, rows)
    return {name: _launch.cast(value, dtype)}


def _draw(
    function: str,
    name: str,
    x: Any,
    indices: Any,
    generator: Any,
    check_nan: bool,
    seed: Any,
    offset: Any,
    return_valid: bool,
    **filters: Any,
) -> Any:
    _launch.rank(function, name, x, 2)
    if check_nan and bool((x != x).any()):
        raise ValueError(f"`{function}`: `{name}` has a NaN")
    rows = x.shape[0] if indices is None else indices.shape[0]
    ids = _launch.empty(x, (rows,), "int32" if indices is None else _ids_of(function, indices))
    values = seeds(function, x, rows, generator, seed, offset)
    values["row_of"] = _launch.none(x, "int32") if indices is None else _launch.cast(indices, "int32")
    values["temperature"] = _launch.none(x, "float32")
    if filters:
        values["joint"] = int(filters.get("joint", False))
        for filter, (parameter, dtype) in _FILTERS.items():
            value = filters.get(filter)
            if value is None:
                values[parameter] = _launch.none(x, dtype)
            else:
                values |= _one_or_each(function, x, rows, parameter, value, dtype, filter)
    # Ids are words of 32 bits, one or two each.
    words = _launch.bits(ids, "int32").reshape(rows, 1 if _launch.type_name(ids) == "i32" else 2)
    kernel = ("sample" if filters else "sample_all") + ("<LOGITS = true>" if name == "logits" else "")
    _launch.launch(function, kernel, _CALLED | {"x": name}, x=x, ids=words, **values)
    return (ids, ids >= 0) if return_valid else ids


def _ids_of(function: str, indices: Any) -> str:
    name = _launch.type_name(indices)
    if name not in ("i32", "i64"):
        raise _launch.argument(function, "indices", f"has elements of {name}, and int32 or int64 is wanted")
    return {"i32": "int32", "i64": "int64"}[name]


def _filtered(function: str, kernel: str, name: str, x: Any, filter: str, value: Any) -> Any:
    _launch.rank(function, name, x, 2)
    out = _launch.empty(x, x.shape)
    parameter, dtype = _FILTERS[filter]
    values = _one_or_each(function, x, x.shape[0], parameter, value, dtype, filter)
    _launch.launch(function, kernel, _CALLED | {"x": name}, x=x, y=out, **values)
    return out


def chain_speculative_sampling(
    draft_probs: Any,
    draft_token_ids: Any,
    target_probs: Any,
    maybe_output_accepted_token_num: Any = None,
    maybe_output_emitted_draft_token_num: Any = None,
    deterministic: bool = True,
    generator: Any = None,
    seed: Any = None,
    offset: Any = None,
) -> tuple[Any, Any, Any]:
    """Drafted tokens as far as they are accepted, one more, and −1; how many would be accepted alone, and how many are emitted.

    The counts are added to the tensors that are passed for them.
    """
    function = "chain_speculative_sampling"
    _launch.rank(function, "draft_probs", draft_probs, 3)
    requests = draft_probs.shape[0]
    counts = []
    for given in (maybe_output_accepted_token_num, maybe_output_emitted_draft_token_num):
        counts.append(_launch.filled(draft_probs, (requests,), 0, "int32") if given is None else given)
    ids = _launch.empty(draft_token_ids, (requests, draft_token_ids.shape[1] + 1))
    called = {"draft": "draft_probs", "drafts": "draft_token_ids", "target": "target_probs"}
    called |= {"accepted": "maybe_output_accepted_token_num", "emitted": "maybe_output_emitted_draft_token_num"}
    _launch.launch(
        function,
        f"chain_speculative<{_launch.type_name(draft_token_ids)}>",
        called,
        draft=draft_probs,
        drafts=draft_token_ids,
        target=target_probs,
        ids=ids,
        accepted=counts[0],
        emitted=counts[1],
        **seeds(function, draft_probs, requests, generator, seed, offset),
    )
    return ids, *counts


def seeds(function: str, like: Any, rows: int, generator: Any, seed: Any, offset: Any) -> dict[str, Any]:
    """Seeds and offsets as kernels take them: for each row, or one for all, from which rows draw independently."""
    if (seed is None) != (offset is None):
        missing = "seed" if seed is None else "offset"
        raise _launch.argument(function, missing, "is missing, and the other of seed and offset is passed")
    if seed is None:
        seed, offset = _drawn(function, like, generator)
    return _seed(function, like, "seed", rows, seed) | _seed(function, like, "offset", rows, offset)


def _seed(function: str, like: Any, name: str, rows: int, value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        # Of 64 bits, whatever their sign.
        value = (value + (1 << 63)) % (1 << 64) - (1 << 63)
        return _one_or_each(function, like, rows, name, value, "int64", name)
    _launch.rank(function, name, value, 1)
    value = _launch.cast(value, "int64")
    if value.shape[0] == 1 and rows != 1:
        # Of one seed for all rows each row takes its own, as of a number.
        steps = range(rows) if name == "seed" else [0] * rows
        value = value + _launch.listed(value, steps, "int64")
    _launch.each(function, name, value, rows)
    return {name: value}


def _drawn(function: str, like: Any, generator: Any) -> tuple[int, int]:
    """A seed and an offset of the generator, which moves on."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(like, "new_empty"):
        raise _launch.argument(function, "seed", "is missing, and there is no generator of torch")
    if generator is None:
        if like.is_cuda:
            generator = torch.cuda.default_generators[like.device.index]
        else:
            generator = torch.default_generator
    if generator.device.type == "cpu":
        return int(torch.randint(1 << 62, (1,), generator=generator)), 0
    offset = generator.get_offset()
    generator.set_offset(offset + 4)
    return generator.initial_seed(), offset
