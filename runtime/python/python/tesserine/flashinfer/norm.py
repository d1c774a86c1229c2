"""Norms of rows. Inputs are f16 or bf16; rows may have any stride.

``enable_pdl`` changes nothing: a kernel says itself whether it may begin before the one before it ends.
"""

from __future__ import annotations

from typing import Any

from . import _launch

_CALLED = {"x": "input"}


def rmsnorm(input: Any, weight: Any, eps: float = 1e-6, out: Any = None, enable_pdl: bool | None = None) -> Any:
    """``input / sqrt(mean(input ** 2) + eps) * weight``, row by row; of ``[tokens, heads, n]`` head by head."""
    return _rms("rmsnorm", input, weight, eps, out)


def fused_add_rmsnorm(
    input: Any, residual: Any, weight: Any, eps: float = 1e-6, enable_pdl: bool | None = None
) -> None:
    """``residual += input``, then ``input = rmsnorm(residual, weight)``, both in place."""
    _add_rms("fused_add_rmsnorm", input, residual, weight, eps)


def layernorm(input: Any, gemma: Any, beta: Any, eps: float = 1e-6) -> Any:
    """``(input - mean) / sqrt(variance + eps) * gemma + beta``, row by row; ``gemma`` and ``beta`` are f32."""
    _launch.rank("layernorm", "input", input, 2)
    out = _launch.empty(input, input.shape)
    kernel = f"layernorm<{_launch.type_name(input)}>"
    called = _CALLED | {"gamma": "gemma"}
    _launch.launch("layernorm", kernel, called, x=input, gamma=gemma, beta=beta, out=out, eps=eps)
    return out


def _rms(function: str, input: Any, weight: Any, eps: float, out: Any) -> Any:
    _launch.rank(function, "input", input, 2, 3)
    if out is None:
        out = _launch.empty(input, input.shape)
    x, y = (_launch.matrix(function, name, tensor) for name, tensor in (("input", input), ("out", out)))
    kernel = f"{function}<{_launch.type_name(input)}>"
    _launch.launch(function, kernel, _CALLED, x=x, weight=weight, out=y, eps=eps)
    return out


def _add_rms(function: str, input: Any, residual: Any, weight: Any, eps: float) -> None:
    _launch.rank(function, "input", input, 2)
    kernel = f"{function}<{_launch.type_name(input)}>"
    _launch.launch(function, kernel, _CALLED, x=input, residual=residual, weight=weight, eps=eps)
