# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures of the families: the schedule that an expert would choose, and bytes and multiply-adds counted by hand.

The bytes are the bytes that a program must read and write (logical bytes without padding or compiler-made constants);
causal attention counts half of its multiply-adds. The figures are an oracle independent of the compiler's bound. The
programs are ``spyre_mlir.zoo.families``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Figures:
    """Figures of one program."""

    schedule: str
    bytes: int
    multiply_adds: int


def causal_pairs(rows: int, window: int = 0) -> int:
    """Return the number of (query, key) pairs of causal attention, with a window of at most ``window`` keys."""
    window = window or rows
    return window * (window + 1) // 2 + (rows - window) * window


# Families of attention: prompts, decoding with a cache, whole layers.

HEAD = 128
HIDDEN, HEADS, KEY_HEADS, INNER = 4096, 32, 8, 14336
#: Multiply-adds per token of a Llama layer (queries, keys, values, output, MLP); each has a weight of 2 bytes.
LAYER = HIDDEN * HEAD * (2 * HEADS + 2 * KEY_HEADS) + 3 * HIDDEN * INNER

_FLASH = "Tile queries per head over cores, loop over tiles of keys with an online softmax, scores stay in LX"
_DECODE = (
    "Split heads and the cache over cores, the heads of a group as rows, read the cache once, merge sums"
)


def _bytes(batch: int, heads: int, key_heads: int, rows: int, keys: int, head: int) -> int:
    """Return the bytes of queries, result, keys and values, once each."""
    return 2 * batch * head * (2 * heads * rows + 2 * key_heads * keys)


def _prefill(batch: int, key_heads: int, rows: int, *, causal: bool = True, heads: int = HEADS) -> Figures:
    pairs = causal_pairs(rows) if causal else rows * rows
    return Figures(
        f"{_FLASH}; tiles above the diagonal are skipped." if causal else f"{_FLASH}.",
        _bytes(batch, heads, key_heads, rows, rows, HEAD),
        2 * batch * heads * pairs * HEAD,
    )


def _window(key_heads: int, rows: int, window: int) -> Figures:
    return Figures(
        f"{_FLASH}; only the tiles of keys that a window meets, masked on its two edges.",
        _bytes(1, HEADS, key_heads, rows, rows, HEAD),
        2 * HEADS * causal_pairs(rows, window) * HEAD,
    )


def _cross(batch: int, heads: int, rows: int, keys: int, head: int) -> Figures:
    return Figures(
        f"{_FLASH}.",
        _bytes(batch, heads, heads, rows, keys, head),
        2 * batch * heads * rows * keys * head,
    )


def _decode(batch: int, key_heads: int, keys: int, *, heads: int = HEADS) -> Figures:
    return Figures(
        f"{_DECODE}.",
        _bytes(batch, heads, key_heads, 1, keys, HEAD),
        2 * batch * heads * keys * HEAD,
    )


def _scores(batch: int, key_heads: int, keys: int, rows: int) -> Figures:
    return Figures(
        "Tile batches so that a core addresses its part, split keys over cores, read the cache once.",
        2 * batch * key_heads * (keys * HEAD + rows * HEAD + keys * rows),
        batch * key_heads * keys * rows * HEAD,
    )


def _decode_layer(batch: int, keys: int) -> Figures:
    row = 2 * KEY_HEADS * HEAD
    return Figures(
        "Stream the weights once with columns over cores, the token in all of them; attention as in decoding.",
        # Weights, norms, rotary tables, tokens; the old caches read, the new row of both written.
        2 * (LAYER + 2 * HIDDEN + 2 * HEAD + batch * (2 * HIDDEN + row * (keys - 1) + row)),
        batch * (LAYER + 2 * HEADS * HEAD * keys),
    )


def _prefill_layer(rows: int) -> Figures:
    return Figures(
        "Products with rows and columns over cores so that results stay in LX, weights read once; attention tiled.",
        2 * (LAYER + 2 * HIDDEN + 2 * rows * HEAD + 2 * rows * HIDDEN),
        rows * LAYER + 2 * HEADS * causal_pairs(rows) * HEAD,
    )


def _qkv_rotary(rows: int) -> Figures:
    columns = (HEADS + 2 * KEY_HEADS) * HEAD
    return Figures(
        "One product with heads over cores, the rotation on what is in LX, each result written once.",
        2 * (HIDDEN * columns + rows * HIDDEN + 2 * rows * HEAD + rows * columns),
        rows * HIDDEN * columns,
    )


_ATTENTION = {
    "prefill_512_all": _prefill(1, HEADS, 512, causal=False),
    "prefill_2048_causal_all": _prefill(1, HEADS, 2048),
    "prefill_2048_causal_grouped": _prefill(1, KEY_HEADS, 2048),
    "prefill_2048_causal_multi_query": _prefill(1, 1, 2048),
    "prefill_8192_causal_grouped": _prefill(1, KEY_HEADS, 8192),
    "prefill_512_batch_8_grouped": _prefill(8, KEY_HEADS, 512),
    "prefill_128_batch_64_grouped": _prefill(64, KEY_HEADS, 128),
    "window_1024_of_4096_all": _window(HEADS, 4096, 1024),
    "window_1024_of_4096_grouped": _window(KEY_HEADS, 4096, 1024),
    "cross_448_of_1500": _cross(1, 20, 448, 1500, 64),
    "decode_1_cache_4096_all": _decode(1, HEADS, 4096),
    "decode_1_cache_32768_grouped": _decode(1, KEY_HEADS, 32768),
    "decode_1_cache_32768_multi_query": _decode(1, 1, 32768),
    "decode_8_cache_4096_grouped": _decode(8, KEY_HEADS, 4096),
    "decode_8_cache_4096_all": _decode(8, HEADS, 4096),
    "decode_8_cache_32768_grouped": _decode(8, KEY_HEADS, 32768),
    "decode_64_cache_4096_grouped": _decode(64, KEY_HEADS, 4096),
    "decode_64_cache_4096_multi_query": _decode(64, 1, 4096),
    "scores_64_cache_4096": _scores(64, KEY_HEADS, 4096, HEADS // KEY_HEADS),
    "decode_layer_1_cache_4096": _decode_layer(1, 4096),
    "decode_layer_8_cache_32768": _decode_layer(8, 32768),
    "prefill_layer_2048": _prefill_layer(2048),
    "qkv_rotary_1": _qkv_rotary(1),
    "qkv_rotary_512": _qkv_rotary(512),
}


# Families of models with a state: LSTM, Mamba, RWKV, and the chunks of a state-space model.

_RESIDENT = "Columns of the weights over cores, where they stay in LX from step to step; the state too"
_STREAM = "Columns of the weights over cores, each read once; the state over cores, read and written once"


def _lstm(steps: int, batch: int, hidden: int) -> Figures:
    weights = 8 * hidden * hidden
    return Figures(
        f"{_RESIDENT}.",
        # Weights and two biases; inputs, outputs, the first two states and the last two.
        2 * (weights + 8 * hidden + 2 * steps * batch * hidden + 4 * batch * hidden),
        steps * batch * weights,
    )


def _mamba(batch: int, hidden: int, inner: int, state: int, rank: int) -> Figures:
    weights = 3 * hidden * inner + inner * (rank + 2 * state) + rank * inner
    vectors = inner * (4 + 1 + 1 + state + 1)
    return Figures(
        f"{_STREAM}.",
        # The oldest of the four taps is not read, but all four are written.
        2 * (weights + vectors + batch * (2 * hidden + inner * (3 + 4) + 2 * inner * state)),
        batch * weights,
    )


def _rwkv(batch: int, hidden: int, head: int, inner: int) -> Figures:
    weights = 6 * hidden * hidden + 2 * hidden * inner
    return Figures(
        f"{_STREAM}.",
        2 * (weights + (6 + 2 + 6) * hidden + batch * (6 * hidden + 2 * hidden * head)),
        batch * (weights + hidden * head),
    )


def _ssd(chunks: int, heads: int, length: int, head: int, state: int) -> Figures:
    rows = chunks * length
    pairs = causal_pairs(length)
    within = chunks * pairs * (state + heads * head)
    return Figures(
        "Heads over cores: scores of a chunk once for all heads, tiles above the diagonal skipped, states in LX.",
        2 * (2 * rows * heads * head + rows * heads + 2 * rows * state),
        # The first chunk reads no state, and the state of the last chunk is not needed.
        within + 2 * (chunks - 1) * length * heads * head * state,
    )


_STEPS = {
    "lstm_1_step": _lstm(1, 64, 1024),
    "lstm_16_steps": _lstm(16, 64, 1024),
    "mamba_step": _mamba(8, 2560, 5120, 16, 160),
    "rwkv_step": _rwkv(8, 2048, 64, 7168),
    "ssd_chunks": _ssd(8, 32, 256, 64, 128),
}


# Families of images and sound: ResNet, MobileNet, a U-Net level, ViT, the encoder of Whisper.

_BANDS = "Bands of rows over cores with one halo read, channels in the stick, weights in every core, all between in LX"
_ROWS = "Rows in uneven slices over cores, weights read once, activations stay in LX"


#: Input channels, inner channels, stride and blocks of each stage of ResNet-50, and the input pixels of a side.
RESNET = ((64, 64, 1, 3, 56), (256, 128, 2, 4, 56), (512, 256, 2, 6, 28), (1024, 512, 2, 3, 14))

#: Expansion factor, output channels, blocks and stride of each stage of MobileNet v2.
MOBILENET = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def _mobilenet_blocks() -> Iterator[tuple[int, int, int, int, int]]:
    """Yield input channels, output channels, stride, expansion factor and input pixels of a side of each block."""
    inputs, pixels = 32, 112
    for factor, outputs, count, first in MOBILENET:
        for stride in (first, *[1] * (count - 1)):
            yield inputs, outputs, stride, factor, pixels
            inputs, pixels = outputs, pixels // stride


def _work(weights: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the parameters and multiply-adds of convolutions, given as (weights, pixels of the result)."""
    return sum(size for size, _ in weights), sum(size * pixels for size, pixels in weights)


def _stage_work(inputs: int, inner: int, stride: int, blocks: int, pixels: int) -> tuple[int, int, int]:
    """Return weights, biases (from the folded norms) and multiply-adds of one image."""
    fine, area = pixels**2, (pixels // stride) ** 2
    first = [(inputs * inner, fine), (9 * inner**2, area), (4 * inner**2, area), (4 * inner * inputs, area)]
    later = [(4 * inner**2, area), (9 * inner**2, area), (4 * inner**2, area)]
    weights, work = _work(first + (blocks - 1) * later)
    return weights, 6 * blocks * inner + 4 * inner, work


def _resnet_stage(number: int) -> Figures:
    inputs, inner, stride, _, pixels = RESNET[number - 1]
    weights, biases, work = _stage_work(*RESNET[number - 1])
    return Figures(
        f"{_BANDS}."
        if number < 3
        else "Output channels over cores, weights read once, the small image in every core.",
        2 * (weights + biases + inputs * pixels**2 + 4 * inner * (pixels // stride) ** 2),
        work,
    )


def _whole_resnet() -> Figures:
    weights, biases, work = (
        sum(column) for column in zip(*(_stage_work(*stage) for stage in RESNET), strict=True)
    )
    weights, biases = weights + 147 * 64 + 2048 * 1000, biases + 64 + 1000
    return Figures(
        "As its stages; the weights of the next convolution are read while one computes.",
        2 * (weights + biases + 3 * 224**2 + 1000),
        work + 147 * 64 * 112**2 + 2048 * 1000,
    )


def _block_work(inputs: int, outputs: int, stride: int, factor: int, pixels: int) -> tuple[int, int, int]:
    inner, fine, area = inputs * factor, pixels**2, (pixels // stride) ** 2
    wider = [(inputs * inner, fine)] if factor != 1 else []
    weights, work = _work([*wider, (9 * inner, area), (inner * outputs, area)])
    return weights, (2 if factor != 1 else 1) * inner + outputs, work


def _mobilenet_block(inputs: int, outputs: int, stride: int, factor: int, pixels: int) -> Figures:
    weights, biases, work = _block_work(inputs, outputs, stride, factor, pixels)
    return Figures(
        f"{_BANDS}; the depthwise kernel on vectors of channels.",
        2 * (weights + biases + inputs * pixels**2 + outputs * (pixels // stride) ** 2),
        work,
    )


def _whole_mobilenet() -> Figures:
    figures = [_block_work(*block) for block in _mobilenet_blocks()]
    weights, biases, work = (sum(column) for column in zip(*figures, strict=True))
    ends = 27 * 32, 320 * 1280, 1280 * 1000
    return Figures(
        "As its block; the weights of the next convolution are read while one computes.",
        2 * (weights + sum(ends) + biases + 32 + 1280 + 1000 + 3 * 224**2 + 1000),
        work + ends[0] * 112**2 + ends[1] * 7**2 + ends[2],
    )


def _unet(batch: int, channels: int, pixels: int) -> Figures:
    numbers = batch * channels * pixels**2
    return Figures(
        f"{_BANDS}; the sums of the norms over the ring.",
        2 * (18 * channels**2 + 6 * channels + 2 * numbers),
        18 * channels**2 * batch * pixels**2,
    )


def _unet_up(coarse: int, fine: int, pixels: int) -> Figures:
    area = pixels**2
    return Figures(
        f"{_BANDS}; the coarse image is read once and its pixels used four times.",
        2 * (9 * (coarse + fine) * fine + fine + coarse * area // 4 + 2 * fine * area),
        9 * (coarse + fine) * fine * area,
    )


def _layer_work(tokens: int, hidden: int) -> tuple[int, int]:
    """Return the parameters of an encoder layer, and its multiply-adds for the tokens of one sequence."""
    weights = 12 * hidden**2
    return weights + (3 + 1 + 4 + 1 + 4) * hidden, tokens * weights + 2 * tokens**2 * hidden


def _encoder_layer(batch: int, tokens: int, hidden: int) -> Figures:
    parameters, work = _layer_work(tokens, hidden)
    return Figures(
        f"{_ROWS}; attention with heads over cores.",
        2 * (parameters + 2 * batch * tokens * hidden),
        batch * work,
    )


def _vit(layers: int, hidden: int) -> Figures:
    tokens, (parameters, work) = 197, _layer_work(197, hidden)
    ends = 768 * hidden + hidden, tokens * hidden + hidden + 2 * hidden, hidden * 1000 + 1000
    return Figures(
        f"{_ROWS}; the weights of the next layer are read while one computes.",
        2 * (layers * parameters + sum(ends) + 3 * 224**2 + 1000),
        # The last attention needs keys and values of all tokens; after it only the class token is needed.
        (layers - 1) * work
        + hidden**2 * (2 * tokens + 10)
        + 2 * tokens * hidden
        + 196 * 768 * hidden
        + 1000 * hidden,
    )


def _whisper_stem(bands: int, hidden: int, length: int) -> Figures:
    weights = 3 * bands * hidden, 3 * hidden**2
    return Figures(
        "Time over cores with a halo of two, channels in the stick, each weight read once.",
        2 * (sum(weights) + 2 * hidden + bands * 2 * length + 2 * length * hidden),
        weights[0] * 2 * length + weights[1] * length,
    )


_IMAGES = {
    **{f"resnet50_stage_{number}": _resnet_stage(number) for number in (1, 2, 3, 4)},
    "resnet50": _whole_resnet(),
    "mobilenet_block_56": _mobilenet_block(24, 24, 1, 6, 56),
    "mobilenet_block_14": _mobilenet_block(96, 96, 1, 6, 14),
    "mobilenet": _whole_mobilenet(),
    "unet_level": _unet(2, 320, 64),
    "unet_up": _unet_up(128, 64, 128),
    "vit_layer_1": _encoder_layer(1, 197, 768),
    "vit_layer_8": _encoder_layer(8, 197, 768),
    "vit": _vit(12, 768),
    "whisper_stem": _whisper_stem(80, 1280, 1500),
    "whisper_layer": _encoder_layer(1, 1500, 1280),
}


# Families of linear layers: MLPs, adapters, heads, experts, recommendation, 8-bit weights, norms, transposes.

_COLUMNS = "Columns of the weight over cores, each read once; the few rows lie in every core"
_ONE_PASS = "Rows over cores, one pass with all between in LX, each number read and written once"


def _one_pass(numbers: int, schedule: str = _ONE_PASS) -> Figures:
    """Return the figures of a function that reads or writes ``numbers`` numbers once, of 2 bytes each."""
    return Figures(f"{schedule}.", 2 * numbers, 0)


def _linear(rows: int, columns: int) -> Figures:
    return Figures(
        f"{_COLUMNS}; columns that 32 does not divide in uneven slices.",
        2 * (HIDDEN * columns + rows * (HIDDEN + columns)),
        rows * HIDDEN * columns,
    )


def _swiglu(rows: int) -> Figures:
    return Figures(
        f"{_COLUMNS}; the gated product stays in LX, cut along the columns that the last product sums over.",
        2 * (3 * HIDDEN * INNER + 2 * rows * HIDDEN),
        3 * rows * HIDDEN * INNER,
    )


def _lora(rows: int, rank: int) -> Figures:
    weights = HIDDEN * HIDDEN + 2 * HIDDEN * rank
    return Figures(
        f"{_COLUMNS}; the adapter's product of {rank} columns by rows, its result added where the large one lies.",
        2 * (weights + 2 * rows * HIDDEN),
        rows * weights,
    )


def _cross_entropy(rows: int, columns: int) -> Figures:
    return Figures(
        f"{_ONE_PASS}: the maximum, the sum of exponentials, and the one logit of each row.",
        2 * rows * columns + 8 * rows + 2,
        0,
    )


def _top_two(rows: int, inner: int, experts: int) -> Figures:
    weights = 3 * HIDDEN * inner
    return Figures(
        f"{_COLUMNS}; the weights of all experts once, for with many tokens each is wanted.",
        2 * (experts * weights + experts * HIDDEN + 2 * rows * HIDDEN),
        rows * (2 * weights + experts * HIDDEN),
    )


def _in_turn(rows: int, inner: int, experts: int) -> Figures:
    weights = 3 * HIDDEN * inner
    return Figures(
        "A loop over the experts: the weights of each read once, the sum over them in LX.",
        2 * (experts * weights + experts * HIDDEN + 2 * rows * HIDDEN),
        rows * experts * (weights + HIDDEN),
    )


def _dlrm(batch: int, tables: int, rows: int, width: int) -> Figures:
    top = width + (tables + 1) ** 2, 1024, 1024, 512, 256, 1
    layers = [*itertools.pairwise((13, 512, 256, width)), *itertools.pairwise(top)]
    weights = sum(a * b for a, b in layers)
    return Figures(
        "Samples over cores from the lookup to the last layer, the weights of the MLPs in every core.",
        # Weights and biases; numbers, indices, gathered rows, results.
        2 * (weights + sum(b for _, b in layers)) + batch * (2 * 13 + 8 * tables + 2 * tables * width + 2),
        batch * (weights + (tables + 1) ** 2 * width),
    )


def _eight_bits(rows: int, columns: int) -> Figures:
    return Figures(
        f"{_COLUMNS}, as 8 bits that are widened in LX.",
        HIDDEN * columns + 2 * columns + 2 * rows * (HIDDEN + columns),
        rows * HIDDEN * columns,
    )


_TRANSPOSE = "Blocks of 64 x 64 over cores, turned in the core, each number read and written once"

_LINEAR = {
    "swiglu_1": _swiglu(1),
    "swiglu_512": _swiglu(512),
    "lora_1": _lora(1, 16),
    "lora_512": _lora(512, 16),
    "lm_head_1_of_50257": _linear(1, 50257),
    "lm_head_64_of_50257": _linear(64, 50257),
    "lm_head_1_of_128256": _linear(1, 128256),
    "lm_head_64_of_128256": _linear(64, 128256),
    "cross_entropy_512_of_50257": _cross_entropy(512, 50257),
    "cross_entropy_512_of_128256": _cross_entropy(512, 128256),
    "moe_top_2_64": _top_two(64, 1408, 8),
    "moe_in_turn_512": _in_turn(512, 1408, 8),
    "dlrm_2048": _dlrm(2048, 26, 100_000, 64),
    "fp8_linear_1": _eight_bits(1, INNER),
    "fp8_linear_64": _eight_bits(64, INNER),
    "int8_linear_1": _eight_bits(1, INNER),
    "int8_linear_64": _eight_bits(64, INNER),
    "layer_norm_of_channels": _one_pass(2 * 8 * 96 * 56 * 56 + 2 * 96),
    "layer_norm_of_images": _one_pass(2 * 8 * 512 * 64 * 64 + 2 * 64 * 64),
    "layer_norm_of_dim_0": _one_pass(2 * 1024 * 8192, "Columns over cores, the rest as in rows"),
    "transpose_4096": _one_pass(2 * 4096 * 4096, _TRANSPOSE),
    "transpose_batches": _one_pass(2 * 32 * 128 * 4096, _TRANSPOSE),
    "transpose_heads": _one_pass(2 * 8 * 512 * 32 * 128, "A copy of whole rows of 128, split over cores"),
}


#: All figures, by the name of the program.
FIGURES: Mapping[str, Figures] = {**_ATTENTION, **_LINEAR, **_STEPS, **_IMAGES}
