"""Scans over a sequence: what the recurrence itself needs, and what the code does that was called.

What is counted is the code as it is written: its loop, or its chunks (how they grow, the trace hands over). What
every implementation needs stands beside it: the least multiply-adds of any form, each tensor read or written once.
Products of matrices are taken to run on matrix units, since chunked kernels run them there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

from rooflens.costs.registry import Demand, Formula, Need, register
from rooflens.costs.units import is_floating, matrix, pointwise
from rooflens.records import Call, Tensor
from rooflens.records.work import united

_QKV = ("query", "key", "value")
SCANS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "selective_scan": ("hidden_states", "dt", "A", "B", "C", "D", "z", "delta_bias"),
        "selective_state_update": ("state", "hidden_states", "dt", "A", "B", "C", "D", "dt_bias", "z"),
        "chunk_scan": ("hidden_states", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states"),
        "chunk_state_update": ("state", "hidden_states", "dt", "A", "B", "C", "D", "dt_bias", "z"),
        "gated_delta_rule": (*_QKV, "g", "beta", "initial_state"),
        "wkv": ("time_decay", "time_first", "key", "value", "state_0", "state_1", "state_2"),
        "mlstm": (*_QKV, "igate", "fgate", "c_initial", "n_initial", "m_initial"),
        "lightning_attention": (*_QKV, "decay", "query_decay", "key_decay", "diagonal_decay", "state"),
        "linear_recurrence": ("hidden_states", "recurrent_gate", "reset", "recurrent_states"),
        "short_convolution": ("hidden_states", "weight", "bias"),
        "short_convolution_update": ("conv_state", "hidden_states", "weight", "bias"),
    }
)
"""Operations that stand for scans, and the tensors that each takes."""

Flops = Mapping[str, float]

BACKWARD = 2
"""Every product has two factors, and each of them a gradient. States that a kernel computes again are not counted."""


_FORMULA = (
    "The recurrence above, in one pass that reads and writes each tensor once. What stands above is of the Python code,"
    " some turns of its loop ahead of a short run."
)


def _demand(call: Call, least: Flops) -> Demand:
    """What the code does that was called, beside what the scan needs; a fused kernel does no more than that."""
    written = code_work(call)
    if not written:
        return Demand(flops=least)
    missing = frozenset(unit.partition("/")[2] for unit in written if unit.startswith("missing/"))
    moved = written.pop("dram")
    once = call.reads + call.writes - _widened(call)
    need = Need(flops=least, bytes=min(moved, once), cause="loop", formula=_FORMULA)
    counted = {unit: n for unit, n in written.items() if "/" not in unit}
    return Demand(flops=counted, bytes=moved, need=need, missing=missing)


def code_work(call: Call) -> dict[str, int]:
    """What the code does that was called, by unit; nothing where a call stands for no code."""
    units = call.get("units")
    if not isinstance(units, tuple) or not units:
        return {}
    ahead = call.integer("ahead")
    differences = zip(call.integers("first"), call.integers("step"), call.integers("bend"), strict=True)
    amounts = (a + ahead * b + ahead * (ahead - 1) // 2 * c for a, b, c in differences)
    return dict(zip(map(str, units), amounts, strict=True))


def _widened(call: Call) -> int:
    """Bytes that a kernel saves because its result has the type of its input: Python code may make it a wider one."""
    results = call.tensors("grads") if call.name.endswith("_backward") else call.outputs
    like = _given(call, "hidden_states", "value")
    width = min((t.nbytes // max(1, t.elements) for t in like), default=0)
    return sum(max(0, t.nbytes - width * t.elements) for t in results[:1] if width and is_floating(t))


def _given(call: Call, *names: str) -> list[Tensor]:
    """Those of the optional tensors that the call has."""
    return [value for value in map(call.get, names) if isinstance(value, Tensor)]


# Selective scan (Mamba 1) ---------------------------------------------------------------------------------------------


def _selective(call: Call) -> Flops:
    tokens, states = call.tensor("hidden_states"), call.tensor("A").shape[-1]
    gates = _given(call, "z")
    vector = 6 * states + 1 + 2 * len(_given(call, "D")) + 3 * len(gates) + len(_given(call, "delta_bias", "dt_bias"))
    special = states + 2 * len(gates)
    return pointwise(tokens, vector=vector * tokens.elements, special=special * tokens.elements)


@register("scan", "selective_scan", "selective_state_update")
def selective(call: Call) -> Demand:
    """h = exp(dt A) h + (dt x) B and y = C h: per token, channel and state 1 exp, 2 products and 2 multiply-adds.

    Per token and channel dt x (1), D x (2), the bias of dt (1), and the gate z (3, 2 special).
    """
    return _demand(call, _selective(call))


# Products of a state that is a matrix ---------------------------------------------------------------------------------


def _least_macs(tokens: int, by_token: int, by_pair: int, into: int, out_of: int) -> int:
    """The fewest multiply-adds of any form of a linear recurrence.

    Token by token each token meets the state, `by_token` in all. Without states each pair of a token and an earlier one
    (or itself) meets, `by_pair` in all, as in attention; then only a state that comes in (`into` per token) or is given
    back (`out_of`) costs more.
    """
    return min(tokens * by_token, tokens * (tokens + 1) // 2 * by_pair + tokens * (into + out_of))


def _chunk_scan(call: Call) -> Flops:
    x, states = call.tensor("hidden_states"), call.tensor("B").shape[-1]
    batch, tokens, heads, width = x.shape
    groups = call.tensor("B").shape[2]
    once = batch * heads * width * states  # a token's outer product, or its product with the state
    pairs = batch * (groups * states + heads * width)
    into, out_of = once * len(_given(call, "initial_states")), once * _gives_state(call)
    macs = _least_macs(tokens, 2 * once, pairs, into, out_of)
    vector = x.elements * (1 + 2 * len(_given(call, "D")) + 3 * len(_given(call, "z")))
    return united((matrix(macs, x), pointwise(x, vector=vector, special=batch * tokens * heads)))


def _gives_state(call: Call) -> int:
    """1 if the call returns the state after the last token."""
    return int(len(call.outputs) > 1)


@register("scan", "chunk_scan")
def chunk_scan(call: Call) -> Demand:
    """S = exp(dt A) S + (dt x) B and y = S C: per token and head two products of width and state.

    Few tokens need less as attention: C B per group and pair, and its product with x. Per token and head 1 exp; per
    element dt x (1), D x (2) and the gate z (3).
    """
    return _demand(call, _chunk_scan(call))


@register("scan", "chunk_state_update")
def chunk_state_update(call: Call) -> Demand:
    """One token: the state takes in (dt x) B, which is element-wise, and meets C, a multiply-add each per element.

    Per head 1 exp.
    """
    state = call.tensor("state")
    product, update = matrix(state.elements, call.tensor("hidden_states")), pointwise(state, vector=2 * state.elements)
    return _demand(call, united((product, update, _decays(state, 2))))


def _decays(state: Tensor, heads_at: int) -> Flops:
    """One exponential for each matrix of a state."""
    return pointwise(state, special=prod(state.shape[:heads_at]))


def _delta_rule(call: Call) -> Flops:
    key, value = call.tensor("key"), call.tensor("value")
    batch, tokens, key_heads, width = key.shape
    heads, value_width = value.shape[-2:]
    once = batch * heads * width * value_width
    pairs = 2 * batch * (key_heads * width + heads * value_width)
    into, out_of = 2 * once * len(_given(call, "initial_state")), once * _gives_state(call)
    macs = _least_macs(tokens, 3 * once, pairs, into, out_of)
    decays = call.tensor("g")
    return united(
        (matrix(macs, key), pointwise(value, vector=2 * value.elements), pointwise(decays, special=decays.elements))
    )


@register("scan", "gated_delta_rule")
def delta_rule(call: Call) -> Demand:
    """S = exp(g) S + k (beta (v - S k)) and o = S q: per token and head three products of key and value width.

    Few tokens need less as attention: k k and q k per pair, and two sums of values. 1 exp per decay, 2 per value.
    """
    return _demand(call, _delta_rule(call))


def _matrix_memory(call: Call, key: Tensor, value: Tensor, state: str) -> Flops:
    """Linear attention of (batch, heads, tokens, width): S = decay S + k v and h = S q."""
    batch, heads, tokens, width = key.shape
    once = batch * heads * width * value.shape[-1]
    pairs = batch * heads * (width + value.shape[-1])
    return matrix(_least_macs(tokens, 2 * once, pairs, once * len(_given(call, state)), once * _gives_state(call)), key)


def _mlstm(call: Call) -> Flops:
    key, value, gates = call.tensor("key"), call.tensor("value"), call.tensor("igate")
    return united(
        (
            _matrix_memory(call, key, value, "c_initial"),
            pointwise(value, vector=value.elements + 3 * key.elements, special=3 * gates.elements),
        )
    )


@register("scan", "mlstm")
def mlstm(call: Call) -> Demand:
    """C = f C + i k v, n = f n + i k and h = C q / max(n q, 1): per token and head two products of both widths.

    Few tokens need less as attention: q k per pair, and its product with v. Per element of keys 3 (n and n q) and of
    values 1; per token and head the exponentials of three gates.
    """
    return _demand(call, _mlstm(call))


def _lightning(call: Call) -> Flops:
    return _matrix_memory(call, call.tensor("key"), call.tensor("value"), "state")


@register("scan", "lightning_attention")
def lightning(call: Call) -> Demand:
    """S = decay S + k v and o = S q: per token and head two products of both widths.

    Few tokens need less as attention: q k per pair, and its product with v.
    """
    return _demand(call, _lightning(call))


# Elementwise recurrences ----------------------------------------------------------------------------------------------


@register("scan", "wkv")
def wkv(call: Call) -> Demand:
    """A weighted average with decay: per token and channel 13 and 2 special.

    Two maxima and the sums before them (4), two multiply-adds that read the state and two that change it (8), one
    quotient, two exponentials: of the two that are compared with their maximum one is exp(0).
    """
    key = call.tensor("key")
    return _demand(call, pointwise(key, vector=13 * key.elements, special=2 * key.elements))


@register("scan", "wkv_backward")
def wkv_backward(call: Call) -> Demand:
    """Twice the four multiply-adds of forward: each has two factors with a gradient."""
    key = call.tensor("key")
    return _demand(call, pointwise(key, vector=BACKWARD * 8 * key.elements))


@register("scan", "linear_recurrence")
def linear_recurrence(call: Call) -> Demand:
    """h = a h + x: one multiply-add per element."""
    x = call.tensor("hidden_states")
    return _demand(call, pointwise(x, vector=2 * x.elements))


@register("scan", "linear_recurrence_backward")
def linear_recurrence_backward(call: Call) -> Demand:
    """The gradient goes back by the same recurrence (2 per element), and meets the state before for that of a (1)."""
    x = call.tensor("hidden_states")
    return _demand(call, pointwise(x, vector=3 * x.elements))


# Short convolutions ---------------------------------------------------------------------------------------------------


def _short_convolution(call: Call) -> Flops:
    x, weight = call.tensor("hidden_states"), call.tensor("weight")
    return matrix(x.elements * weight.shape[-1], x)


@register("convolution", "short_convolution", "short_convolution_update")
def short_convolution(call: Call) -> Demand:
    """Every element meets the few taps of its channel. The bias and the activation are left out of what is needed."""
    return _demand(call, _short_convolution(call))


# Gradients ------------------------------------------------------------------------------------------------------------


def _gradient_of(forward: Callable[[Call], Flops]) -> Formula:
    def backward(call: Call) -> Demand:
        """Twice the products of forward: each has two factors with a gradient."""
        least = forward(call)
        return _demand(call, {unit: BACKWARD * n for unit, n in least.items() if not unit.startswith("special")})

    return backward


for _name, _forward in (
    ("selective_scan", _selective),
    ("chunk_scan", _chunk_scan),
    ("gated_delta_rule", _delta_rule),
    ("mlstm", _mlstm),
    ("lightning_attention", _lightning),
):
    register("scan", f"{_name}_backward")(_gradient_of(_forward))
register("convolution", "short_convolution_backward")(_gradient_of(_short_convolution))
