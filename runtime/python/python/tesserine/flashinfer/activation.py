"""Gated activations: an activation of the first half of each row times the second half. Inputs are f16 or bf16.

``enable_pdl`` changes nothing: a kernel says itself whether it may begin before the one before it ends.
"""

from __future__ import annotations

from typing import Any

from . import _launch


def silu_and_mul(input: Any, out: Any = None, enable_pdl: bool | None = None) -> Any:
    """``silu(input[..., :d]) * input[..., d:]``."""
    return _gated("silu_and_mul", input, out)


def gelu_and_mul(input: Any, out: Any = None, enable_pdl: bool | None = None) -> Any:
    """``gelu(input[..., :d]) * input[..., d:]``."""
    return _gated("gelu_and_mul", input, out)


def gelu_tanh_and_mul(input: Any, out: Any = None, enable_pdl: bool | None = None) -> Any:
    """``gelu(input[..., :d]) * input[..., d:]``, of the usual approximation by tanh."""
    return _gated("gelu_tanh_and_mul", input, out)


def _gated(function: str, input: Any, out: Any) -> Any:
    width = input.shape[-1]
    if width % 2:
        raise _launch.argument(function, "input", f"has rows of {width} elements, which are no two halves")
    if out is None:
        out = _launch.empty(input, (*input.shape[:-1], width // 2))
    kernel = f"{function}<{_launch.type_name(input)}>"
    x, y = (_launch.matrix(function, name, tensor) for name, tensor in (("input", input), ("out", out)))
    _launch.launch(function, kernel, {"x": "input"}, x=x, out=y)
    return out
