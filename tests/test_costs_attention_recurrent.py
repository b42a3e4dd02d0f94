"""Formulas of attention and recurrent layers. Every expected number is derived from the sizes in the test."""

from __future__ import annotations

import pytest
from tests.calls import call, tensor, work

from rooflens.costs import Arithmetic, cost
from rooflens.costs.attention import seen_keys
from rooflens.records import Call, Tensor


def attention(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, causal: bool = False, dropout: float = 0.0
) -> Call:
    *batch, queries, _ = query.shape
    output = tensor(*batch, queries, value.shape[-1], dtype=query.dtype)
    logsumexp = tensor(*batch, queries)
    return call(
        "attention", (output, logsumexp), query=query, key=key, value=value, mask=mask, dropout=dropout, causal=causal
    )


def attention_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    needed: tuple[bool, bool, bool, bool] = (True, True, True, False),
) -> Call:
    *batch, queries, _ = query.shape
    output = tensor(*batch, queries, value.shape[-1], dtype=query.dtype)
    gradients = tuple(
        source for source, wanted in zip((query, key, value, mask), needed, strict=True) if wanted and source
    )
    return call(
        "attention_backward",
        gradients,
        grad=output,
        query=query,
        key=key,
        value=value,
        output=output,
        logsumexp=tensor(*batch, queries),
        mask=mask,
        dropout=0.0,
        causal=causal,
        needed=needed,
    )


# 2 sequences, 3 heads, 5 queries, 7 keys: 2 x 3 x 35 = 210 pairs. Queries and keys are 4 wide, values 6.
Q, K, V = tensor(2, 3, 5, 4), tensor(2, 3, 7, 4), tensor(2, 3, 7, 6)
PAIRS = 210
Q_BYTES, K_BYTES, V_BYTES = 4 * 120, 4 * 168, 4 * 252
OUT_BYTES, LSE_BYTES = 4 * 180, 4 * 30


def test_full_attention_of_unequal_widths() -> None:
    # Per pair 4 multiply-adds for the score and 6 for the weighted sum. Softmax per pair: scale, maximum, subtract, sum
    # and divide are 5, the exponential is special. Never a byte for the matrix of weights.
    priced = cost(attention(Q, K, V))
    assert priced.family == "attention"
    assert priced.work == work(
        Q_BYTES + K_BYTES + V_BYTES + OUT_BYTES + LSE_BYTES,
        matmul_fp32=2 * PAIRS * (4 + 6),
        vector_fp32=5 * PAIRS,
        special_fp32=PAIRS,
    )
    assert priced.kernel_work is None


def test_a_mask_is_read() -> None:
    masked = cost(attention(Q, K, V, mask=tensor(5, 7, dtype="bool"))).work
    assert masked.bytes["dram"] == Q_BYTES + K_BYTES + V_BYTES + 35 + OUT_BYTES + LSE_BYTES


def test_causal_is_counted_in_full_and_timed_by_half() -> None:
    # 6 positions: query i sees the keys up to i, so 1 + 2 + ... + 6 = 21 of 36 pairs, for 2 x 4 heads.
    q = tensor(2, 4, 6, 8)
    priced = cost(attention(q, q, q, causal=True))
    full, half = 8 * 36, 8 * 21
    # Three inputs and the output of 384 elements, 48 sums of exponentials.
    nbytes = 4 * (4 * 384 + 48)
    assert priced.work == work(nbytes, matmul_fp32=2 * full * 16, vector_fp32=5 * full, special_fp32=full)
    assert priced.kernel_work == work(nbytes, matmul_fp32=2 * half * 16, vector_fp32=5 * half, special_fp32=half)


@pytest.mark.parametrize(
    ("queries", "keys", "attending"),
    [
        (1, 1, 1),
        (4, 4, 1 + 2 + 3 + 4),
        (3, 5, 1 + 2 + 3),  # query i sees keys up to i, counted from the start of both
        (5, 3, 1 + 2 + 3 + 3 + 3),
        (1, 9, 1),
    ],
)
def test_pairs_of_a_causal_call(queries: int, keys: int, attending: int) -> None:
    assert seen_keys(queries, keys, -1, 0, from_end=False) == attending
    assert seen_keys(queries, keys, -1, -1, from_end=False) == queries * keys


def test_grouped_queries_share_keys_in_memory_but_not_in_work() -> None:
    # 8 query heads, 2 heads of keys and values: 8 x 6 x 6 pairs; bytes of 2 heads.
    q, kv = tensor(1, 8, 6, 4), tensor(1, 2, 6, 4)
    grouped = cost(attention(q, kv, kv)).work
    assert grouped.matmul_flops == 2 * (8 * 36) * (4 + 4)
    assert grouped.bytes == {"dram": 4 * (192 + 48 + 48 + 192 + 48)}


def test_attention_without_batch() -> None:
    # One head of 5 queries and 7 keys.
    single = cost(attention(tensor(5, 4), tensor(7, 4), tensor(7, 6))).work
    assert single.matmul_flops == 2 * 35 * 10


def test_16_bit_attention() -> None:
    # Products on the bf16 unit, softmax on fp32 lanes; the sums of exponentials are kept in fp32.
    q = tensor(2, 4, 6, 8, dtype="bf16")
    assert cost(attention(q, q, q)).work == work(
        2 * 4 * 384 + 4 * 48, matmul_bf16=2 * (8 * 36) * 16, vector_fp32=5 * 8 * 36, special_fp32=8 * 36
    )


def test_attention_follows_the_switch_of_products() -> None:
    flops = cost(attention(Q, K, V), Arithmetic(products="tf32", convolutions="fp32")).work.flops
    assert flops["matmul.tf32"] == 2 * PAIRS * 10


# What backward reads: gradient and output of 180 elements, inputs, sums of exponentials.
SAVED = 2 * OUT_BYTES + Q_BYTES + K_BYTES + V_BYTES + LSE_BYTES


def test_backward_is_twice_forward() -> None:
    # Per pair: gradient of the weights (6, from V) and of V (6), of Q (4) and of K (4). Softmax: gradient
    # times weight, its sum, subtract, multiply: 4. What a kernel computes again (score and softmax) is not counted.
    priced = cost(attention_backward(Q, K, V))
    assert priced.family == "attention"
    assert priced.work == work(
        SAVED + Q_BYTES + K_BYTES + V_BYTES, matmul_fp32=2 * PAIRS * (6 + 6 + 4 + 4), vector_fp32=4 * PAIRS
    )


@pytest.mark.parametrize(
    ("needed", "widths", "softmax", "written"),
    [
        ((True, False, False, False), 6 + 4, 4, Q_BYTES),  # the weights' gradient, then that of Q
        ((False, True, False, False), 6 + 4, 4, K_BYTES),
        ((False, False, True, False), 6, 0, V_BYTES),  # straight from the weights
        ((True, True, False, False), 6 + 4 + 4, 4, Q_BYTES + K_BYTES),
        ((True, False, True, False), 6 + 6 + 4, 4, Q_BYTES + V_BYTES),
    ],
)
def test_backward_computes_what_is_asked_for(
    needed: tuple[bool, bool, bool, bool], widths: int, softmax: int, written: int
) -> None:
    flops = {"matmul_fp32": 2.0 * PAIRS * widths}
    if softmax:
        flops["vector_fp32"] = softmax * PAIRS
    assert cost(attention_backward(Q, K, V, needed=needed)).work == work(SAVED + written, **flops)


def test_backward_to_a_learned_mask_stops_at_the_weights() -> None:
    # A relative position bias: the gradient of the weights (6 per pair), and the softmax's.
    bias = tensor(2, 3, 5, 7)
    learned = cost(attention_backward(Q, K, V, mask=bias, needed=(False, False, False, True)))
    assert learned.work == work(SAVED + 2 * 4 * 210, matmul_fp32=2 * PAIRS * 6, vector_fp32=4 * PAIRS)


def test_causal_backward_has_its_half_too() -> None:
    q = tensor(2, 4, 6, 8)
    priced = cost(attention_backward(q, q, q, causal=True))
    assert priced.work.matmul_flops == 2 * (8 * 36) * 32
    assert priced.kernel_work is not None
    assert priced.kernel_work.flops == {"matmul.fp32": 2 * (8 * 21) * 32, "vector.fp32": 4 * 8 * 21}
    assert priced.kernel_work.bytes == priced.work.bytes


def weights_of(gates: int, inputs: int, hidden: int, *, biases: bool = True, projected: int = 0) -> tuple[Tensor, ...]:
    """Of one layer and direction: from the input, from the state, two biases, and a projection of the state."""
    matrices = (tensor(gates * hidden, inputs), tensor(gates * hidden, projected or hidden))
    return (
        *matrices,
        *((tensor(gates * hidden), tensor(gates * hidden)) if biases else ()),
        *((tensor(projected, hidden),) if projected else ()),
    )


def recurrent(
    kind: str,
    inputs: Tensor,
    weights: tuple[Tensor, ...],
    *,
    layers: int = 1,
    bidirectional: bool = False,
    states: tuple[Tensor, ...] = (),
    batch_sizes: Tensor | None = None,
) -> Call:
    return call(
        "recurrent",
        (tensor(*inputs.shape[:-1], 7),),
        input=inputs,
        states=states,
        weights=weights,
        batch_sizes=batch_sizes,
        kind=kind,
        layers=layers,
        dropout=0.0,
        train=False,
        bidirectional=bidirectional,
        batch_first=False,
    )


def test_lstm() -> None:
    # 5 steps x 2 sequences = 10 vectors of 3; 4 hidden units have 16 gates.
    # Products: 10 x 16 x (3 + 4). Per unit: 3 sigmoids (1 vector, 2 special each), 2 tanh (1 special each), the cell 3,
    # the output 1: 7 and 8. Per gate: two biases and the sum of both products, 3.
    state = tensor(1, 2, 4)
    c = recurrent("lstm", tensor(5, 2, 3), weights_of(4, 3, 4), states=(state, state))
    priced = cost(c)
    assert priced.family == "recurrent"
    # Input 30, two states of 8, weights 48 + 64 + 16 + 16, result 70.
    assert priced.work == work(
        4 * (30 + 16 + 144 + 70),
        matmul_fp32=2 * 10 * 16 * 7,
        vector_fp32=10 * (4 * 7 + 16 * 3),
        special_fp32=10 * 4 * 8,
    )


def test_lstm_without_biases_and_two_layers() -> None:
    # The second layer reads the 4 units of the first: 10 x 16 x (3 + 4) and 10 x 16 x (4 + 4).
    weights = weights_of(4, 3, 4, biases=False) + weights_of(4, 4, 4, biases=False)
    flops = cost(recurrent("lstm", tensor(5, 2, 3), weights, layers=2)).work.flops
    # Per gate only the sum of both products.
    assert flops == {
        "matmul.fp32": 2 * 10 * 16 * (7 + 8),
        "vector.fp32": 2 * 10 * (4 * 7 + 16),
        "special.fp32": 2 * 10 * 4 * 8,
    }


def test_lstm_with_projections() -> None:
    # The state of 4 units is projected to 2: gates read 3 + 2, the projection is 2 x 4 more. Two directions; the second
    # layer reads 2 x 2.
    first = weights_of(4, 3, 4, projected=2)
    second = weights_of(4, 4, 4, projected=2)
    c = recurrent("lstm", tensor(5, 2, 3), (*first, *first, *second, *second), layers=2, bidirectional=True)
    per_vector = 2 * (16 * (3 + 2) + 8) + 2 * (16 * (4 + 2) + 8)
    assert cost(c).work.flops == {
        "matmul.fp32": 2 * 10 * per_vector,
        "vector.fp32": 4 * 10 * (4 * 7 + 16 * 3),  # 4 = layers x directions
        "special.fp32": 4 * 10 * 4 * 8,
    }


def test_gru() -> None:
    # 12 gates of 4 units. Per unit: 2 sigmoids and a tanh (2 and 5), reset times the hidden product 1, the mixture 4.
    c = recurrent("gru", tensor(5, 2, 3), weights_of(3, 3, 4), states=(tensor(1, 2, 4),))
    assert cost(c).work.flops == {
        "matmul.fp32": 2 * 10 * 12 * 7,
        "vector.fp32": 10 * (4 * 7 + 12 * 3),
        "special.fp32": 10 * 4 * 5,
    }


def test_bidirectional_gru() -> None:
    one = weights_of(3, 3, 4)
    c = recurrent("gru", tensor(5, 2, 3), (*one, *one), bidirectional=True)
    assert cost(c).work.matmul_flops == 2 * (2 * 10 * 12 * 7)


@pytest.mark.parametrize(("kind", "vector", "special"), [("rnn_tanh", 0, 1), ("rnn_relu", 1, 0)])
def test_plain_recurrent_layers(kind: str, vector: int, special: int) -> None:
    # One gate per unit: products 10 x 4 x 7, 3 additions per gate, one tanh or one ReLU.
    flops = cost(recurrent(kind, tensor(5, 2, 3), weights_of(1, 3, 4))).work.flops
    assert flops["matmul.fp32"] == 2 * 10 * 4 * 7
    assert flops["vector.fp32"] == 10 * 4 * (3 + vector)
    assert flops.get("special.fp32", 0) == 10 * 4 * special


def test_packed_sequences_do_not_pay_for_padding() -> None:
    # Lengths 5 and 3 are packed into 8 vectors; padded they would be 10.
    packed = recurrent("lstm", tensor(8, 3), weights_of(4, 3, 4), batch_sizes=tensor(5, dtype="int64"))
    assert cost(packed).work.matmul_flops == 2 * 8 * 16 * 7


def test_recurrent_layers_follow_the_switch_of_cudnn() -> None:
    flops = cost(recurrent("lstm", tensor(5, 2, 3), weights_of(4, 3, 4)), Arithmetic(convolutions="tf32")).work.flops
    assert flops["matmul.tf32"] == 2 * 10 * 16 * 7
    assert "matmul.fp32" not in flops


def test_16_bit_recurrent_layer() -> None:
    half = tuple(tensor(*w.shape, dtype="fp16") for w in weights_of(4, 3, 4))
    flops = cost(recurrent("lstm", tensor(5, 2, 3, dtype="fp16"), half)).work.flops
    assert flops.keys() == {"matmul.fp16", "vector.fp32", "special.fp32"}


def recurrent_backward(needed_input: bool, needed_weights: tuple[bool, ...], weights: tuple[Tensor, ...]) -> Call:
    state = tensor(2, 2, 4)
    sources = (tensor(5, 2, 3), state, state, *weights)
    needed = (needed_input, False, False, *needed_weights)
    return call(
        "recurrent_backward",
        tuple(s for s, wanted in zip(sources, needed, strict=True) if wanted),
        grads=(tensor(5, 2, 4),),
        input=sources[0],
        states=(state, state),
        weights=weights,
        batch_sizes=None,
        output=tensor(5, 2, 4),
        reserve=tensor(800),
        kind="lstm",
        layers=2,
        bidirectional=False,
        batch_first=False,
        needed=needed,
    )


def test_recurrent_backward() -> None:
    # Two layers of 16 gates, 10 vectors. Gradients of vectors: the second layer's input 16 x 4 and both states 16 x 4;
    # the first layer's input 16 x 3 only where it is asked for. Weights: as many multiply-adds as they have elements.
    weights = weights_of(4, 3, 4) + weights_of(4, 4, 4)
    all_of_them = (True,) * 8
    vectors = 16 * (4 + 4 + 4)
    matrices = 16 * (3 + 4 + 4 + 4)
    # Element-wise: twice forward's (7 per unit, 3 per gate, two layers) without special functions: the gates are saved.
    lanes = 2 * 10 * 2 * (4 * 7 + 16 * 3)
    without = cost(recurrent_backward(False, all_of_them, weights))
    assert without.work.flops == {"matmul.fp32": 2 * 10 * (vectors + matrices), "vector.fp32": lanes}
    within = cost(recurrent_backward(True, all_of_them, weights))
    assert within.work.matmul_flops == 2 * 10 * (vectors + 16 * 3 + matrices)
    # With the weights frozen only vectors remain.
    frozen = cost(recurrent_backward(True, (False,) * 8, weights))
    assert frozen.work.matmul_flops == 2 * 10 * (vectors + 16 * 3)
