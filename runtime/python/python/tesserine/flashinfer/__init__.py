"""Operators under FlashInfer's names, with its order of arguments, defaults and shapes, on Tesserine's kernels.

>>> from tesserine import flashinfer
>>> y = flashinfer.rmsnorm(x, weight)  # doctest: +SKIP

Tensors are torch's or of any framework that :class:`tesserine.Kernel` takes; results are of the framework of the inputs, and
launches go to torch's current stream. What has no kernel raises ``NotImplementedError``, a wrong argument
:class:`tesserine.ArgumentError`, which is a ``ValueError``.

The kernels are those of the package; ``$TESSERINE_SET`` names others. With ``$TESS_DEVICE=emulator`` tensors of the CPU are
taken, and kernels are executed there: for tests.
"""

from . import activation, norm, page, quantization, rope, sampling, topk
from .activation import gelu_and_mul, gelu_tanh_and_mul, silu_and_mul
from .norm import (
    fused_add_rmsnorm,
    fused_add_rmsnorm_quant,
    gemma_fused_add_rmsnorm,
    gemma_rmsnorm,
    layernorm,
    layernorm_quant,
    rmsnorm,
    rmsnorm_quant,
)
from .page import (
    append_paged_kv_cache,
    append_paged_mla_kv_cache,
    get_batch_indices_positions,
    get_seq_lens,
    nvfp4_quantize_append_paged_kv_cache,
)
from .quantization import (
    SfLayout,
    fp4_quantize,
    mxfp4_quantize,
    mxfp8_quantize,
    nvfp4_quantize,
    packbits,
    per_token_group_quant_8bit,
    segment_packbits,
)
from .rope import (
    apply_llama31_rope,
    apply_llama31_rope_inplace,
    apply_llama31_rope_pos_ids,
    apply_llama31_rope_pos_ids_inplace,
    apply_rope,
    apply_rope_inplace,
    apply_rope_pos_ids,
    apply_rope_pos_ids_inplace,
    apply_rope_with_cos_sin_cache,
    apply_rope_with_cos_sin_cache_inplace,
)
from .sampling import (
    chain_speculative_sampling,
    min_p_sampling_from_probs,
    sampling_from_logits,
    sampling_from_probs,
    softmax,
    top_k_mask_logits,
    top_k_renorm_probs,
    top_k_sampling_from_probs,
    top_k_top_p_sampling_from_logits,
    top_k_top_p_sampling_from_probs,
    top_p_renorm_probs,
    top_p_sampling_from_probs,
)
from .topk import TopKTieBreak, top_k, top_k_page_table_transform, top_k_ragged_transform

__all__ = [
    "SfLayout",
    "TopKTieBreak",
    "activation",
    "append_paged_kv_cache",
    "append_paged_mla_kv_cache",
    "apply_llama31_rope",
    "apply_llama31_rope_inplace",
    "apply_llama31_rope_pos_ids",
    "apply_llama31_rope_pos_ids_inplace",
    "apply_rope",
    "apply_rope_inplace",
    "apply_rope_pos_ids",
    "apply_rope_pos_ids_inplace",
    "apply_rope_with_cos_sin_cache",
    "apply_rope_with_cos_sin_cache_inplace",
    "chain_speculative_sampling",
    "fp4_quantize",
    "fused_add_rmsnorm",
    "fused_add_rmsnorm_quant",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "gemma_fused_add_rmsnorm",
    "gemma_rmsnorm",
    "get_batch_indices_positions",
    "get_seq_lens",
    "layernorm",
    "layernorm_quant",
    "min_p_sampling_from_probs",
    "mxfp4_quantize",
    "mxfp8_quantize",
    "norm",
    "nvfp4_quantize",
    "nvfp4_quantize_append_paged_kv_cache",
    "packbits",
    "page",
    "per_token_group_quant_8bit",
    "quantization",
    "rmsnorm",
    "rmsnorm_quant",
    "rope",
    "sampling",
    "sampling_from_logits",
    "sampling_from_probs",
    "segment_packbits",
    "silu_and_mul",
    "softmax",
    "top_k",
    "top_k_mask_logits",
    "top_k_page_table_transform",
    "top_k_ragged_transform",
    "top_k_renorm_probs",
    "top_k_sampling_from_probs",
    "top_k_top_p_sampling_from_logits",
    "top_k_top_p_sampling_from_probs",
    "top_p_renorm_probs",
    "top_p_sampling_from_probs",
    "topk",
]
