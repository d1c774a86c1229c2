"""Norms of rows. Inputs are f16 or bf16; rows may have any stride.

``enable_pdl`` changes nothing: a kernel says itself whether it may begin before the one before it ends.
"""

from __future__ import annotations

from typing import Any

from . import _launch

_CALLED = {"x": "input"}
_QUANT = {"x": "input", "out.y": "out", "out.scale": "scale"}


def rmsnorm(input: Any, weight: Any, eps: float = 1e-6, out: Any = None, enable_pdl: bool | None = None) -> Any:
    """``input / sqrt(mean(input ** 2) + eps) * weight``, row by row; of ``[tokens, heads, n]`` head by head."""
    return _rms("rmsnorm", "", input, weight, eps, out)


def gemma_rmsnorm(input: Any, weight: Any, eps: float = 1e-6, out: Any = None, enable_pdl: bool | None = None) -> Any:
    """As ``rmsnorm``, with ``weight + 1`` in the place of ``weight``."""
    return _rms("gemma_rmsnorm", ", GEMMA = true", input, weight, eps, out)


def fused_add_rmsnorm(
    input: Any, residual: Any, weight: Any, eps: float = 1e-6, enable_pdl: bool | None = None
) -> None:
    """``residual += input``, then ``input = rmsnorm(residual, weight)``, both in place."""
    _add_rms("fused_add_rmsnorm", "", input, residual, weight, eps)


def gemma_fused_add_rmsnorm(
    input: Any, residual: Any, weight: Any, eps: float = 1e-6, enable_pdl: bool | None = None
) -> None:
    """As ``fused_add_rmsnorm``, with ``weight + 1`` in the place of ``weight``."""
    _add_rms("gemma_fused_add_rmsnorm", ", GEMMA = true", input, residual, weight, eps)


def layernorm(input: Any, gemma: Any, beta: Any, eps: float = 1e-6) -> Any:
    """``(input - mean) / sqrt(variance + eps) * gemma + beta``, row by row; ``gemma`` and ``beta`` are f32."""
    _launch.rank("layernorm", "input", input, 2)
    out = _launch.empty(input, input.shape)
    kernel = f"layernorm<{_launch.type_name(input)}>"
    called = _CALLED | {"gamma": "gemma"}
    _launch.launch("layernorm", kernel, called, x=input, gamma=gemma, beta=beta, out=out, eps=eps)
    return out


def rmsnorm_quant(
    out: Any, input: Any, weight: Any, scale: Any, eps: float = 1e-6, enable_pdl: bool | None = None
) -> None:
    """``rmsnorm(input, weight) / scale``, rounded to the fp8 type of ``out``. ``scale``: a number, or a tensor with one."""
    function = "rmsnorm_quant"
    kernel = f"rmsnorm_quant<{_launch.type_name(input)}, Q = {_per_tensor(function, out)}>"
    to = {"out.y": out, "out.scale": _launch.scale(input, scale)}
    _launch.launch(function, kernel, _QUANT, x=input, weight=weight, eps=eps, **to)


def fused_add_rmsnorm_quant(
    out: Any, input: Any, residual: Any, weight: Any, scale: Any, eps: float = 1e-6, enable_pdl: bool | None = None
) -> None:
    """``residual += input`` in place, then ``rmsnorm(residual, weight) / scale``, rounded to the fp8 type of ``out``."""
    function = "fused_add_rmsnorm_quant"
    kernel = f"add_rmsnorm_quant<{_launch.type_name(input)}, Q = {_per_tensor(function, out)}>"
    to = {"out.y": out, "out.scale": _launch.scale(input, scale)}
    _launch.launch(function, kernel, _QUANT, x=input, residual=residual, weight=weight, eps=eps, **to)


def layernorm_quant(out: Any, input: Any, gemma: Any, beta: Any, scale: Any, eps: float = 1e-6) -> None:
    """``layernorm(input, gemma, beta) / scale``, rounded to the fp8 type of ``out``."""
    function = "layernorm_quant"
    kernel = f"layernorm_quant<{_launch.type_name(input)}, Q = {_per_tensor(function, out)}>"
    to = {"out.y": out, "out.scale": _launch.scale(input, scale)}
    called = _QUANT | {"gamma": "gemma"}
    _launch.launch(function, kernel, called, x=input, gamma=gemma, beta=beta, eps=eps, **to)


def _rms(function: str, gemma: str, input: Any, weight: Any, eps: float, out: Any) -> Any:
    _launch.rank(function, "input", input, 2, 3)
    if out is None:
        out = _launch.empty(input, input.shape)
    base = "rmsnorm" if len(input.shape) == 2 else "qk_rmsnorm"
    kernel = f"{base}<{_launch.type_name(input)}{gemma}>"
    _launch.launch(function, kernel, _CALLED, x=input, weight=weight, out=out, eps=eps)
    return out


def _add_rms(function: str, gemma: str, input: Any, residual: Any, weight: Any, eps: float) -> None:
    _launch.rank(function, "input", input, 2)
    kernel = f"fused_add_rmsnorm<{_launch.type_name(input)}{gemma}>"
    _launch.launch(function, kernel, _CALLED, x=input, residual=residual, weight=weight, eps=eps)


def _per_tensor(function: str, out: Any) -> str:
    """The variant that stores to ``out``; bytes are taken for e4m3."""
    name = _launch.type_name(out)
    if name not in ("e4m3", "e5m2", "u8"):
        raise _launch.argument(function, "out", f"has elements of {name}, and float8_e4m3fn or float8_e5m2 is wanted")
    return "PerTensor<e5m2>" if name == "e5m2" else "PerTensor"
