"""PyTorch operations that take no time, and operations that take as long as one that a calibration times."""

from __future__ import annotations

from paceline.cost.families import POINTWISE

# These compute nothing, but calling them takes time of the host.
_VIEWS = """
    view t transpose permute expand unbind select slice unsqueeze squeeze as_strided alias split unsafe_split
    split_with_sizes unsafe_split_with_sizes chunk unsafe_chunk narrow _unsafe_view reshape _reshape_alias unfold
    diagonal movedim real imag view_as_real view_as_complex
"""
VIEWS = frozenset(_VIEWS.split())
# These only allocate memory, or are called for the trace.
_ALLOCATE = """
    detach lift_fresh is_same_size sym_size device empty empty_like empty_strided empty_permuted new_empty
    new_empty_strided resize_ set_
"""
FREE = VIEWS | frozenset(_ALLOCATE.split())

# Elementwise operations and passes over memory, by the calibrated operation that does about the same work.
_LIKE = {
    "add": """
        add sub rsub div neg abs sign sgn clamp clamp_min clamp_max maximum minimum where masked_fill eq ne lt le gt
        ge isnan logical_not logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_not threshold leaky_relu
        leaky_relu_backward hardtanh hardtanh_backward hardshrink hardshrink_backward softshrink softshrink_backward
        _prelu_kernel _prelu_kernel_backward rrelu_with_noise_backward addcmul addcdiv lerp square reciprocal floor ceil
        round trunc remainder fmod ones_like zeros_like zeros ones fill zero full full_like scalar_tensor arange
        linspace eye tril triu nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward mse_loss
        mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward multi_margin_loss
        multi_margin_loss_backward sigmoid_backward native_dropout_backward
    """,
    "tanh": """
        exp exp2 log log2 log10 log1p expm1 sqrt rsqrt pow sin cos tan sinh cosh atan erf softplus silu mish hardswish
        hardsigmoid elu celu selu glu log_sigmoid_forward logaddexp binary_cross_entropy
        binary_cross_entropy_with_logits
    """,
    "gelu_backward": """
        silu_backward mish_backward hardswish_backward hardsigmoid_backward elu_backward softplus_backward glu_backward
        log_sigmoid_backward binary_cross_entropy_backward
    """,
    "copy": """
        clone copy cat stack contiguous constant_pad_nd reflection_pad1d reflection_pad1d_backward reflection_pad2d
        reflection_pad2d_backward replication_pad1d replication_pad1d_backward replication_pad2d
        replication_pad2d_backward slice_backward select_backward slice_scatter select_scatter repeat flip roll
        index_select gather scatter _to_copy new_zeros pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im
        upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward
        upsample_bilinear2d upsample_bilinear2d_backward
    """,
    "dropout": "bernoulli native_dropout uniform normal rand rand_like randn randn_like rrelu_with_noise",
}  # fmt: skip
ALIASES = {name: name for name in POINTWISE} | {name: like for like, names in _LIKE.items() for name in names.split()}
"""The family of each operation, by PyTorch's name without the underscore of in-place variants."""
