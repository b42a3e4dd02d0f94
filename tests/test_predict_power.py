"""What the limit of power leaves of work that lasts, on a card with round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.calls import call, tensor
from tests.test_predict import CASE, TERA, device

from rooflens.costs import Arithmetic, cost
from rooflens.predict import Way, card_of, constants_of, generation, generations
from rooflens.predict.card import Card
from rooflens.predict.step import ALONE, Conduct, predicted
from rooflens.records import Call, Record

FLOPS = 2 * 8192**3
"""Of the product below: 11 ms at 100 TFLOP/s."""
WAYS: tuple[Way, ...] = ("eager", "compiled", "graph")


def limited(watts: float | None, busy: float = 0.5, falls: float = 0.0) -> Card:
    """100 TFLOP/s in 16 bits, of which each takes 2 pJ: 200 W, or 2 for each of 100 units."""
    products = {"power.product": 2e-12, "power.attention": 4e-12}
    values = {**products, "power.busy": busy, "power.of_unit": 2.0, "power.falls": falls}
    sheet = device() if watts is None else device(power=watts)
    made = card_of(sheet, constants_of(sheet).measured(values, "round", "by hand"))
    assert made is not None
    return made


def recorded(what: Call) -> Record:
    one = cost(what, Arithmetic())
    return Record(
        case=replace(CASE, mode="inference"), source="estimate", scope="op", kind=one.family, name=what.name,
        phase="forward", work=one.work, call=what,
    )  # fmt: skip


def product(dtype: str = "bf16") -> Record:
    x = tensor(8192, 8192, dtype=dtype)
    return recorded(call("mm", x, self=x, mat2=x))


def moving() -> Record:
    x = tensor(4096, 2**20)  # 17.2 GB, read and written: 34 ms at 1 TB/s
    return recorded(call("relu", x, self=x))


def seconds(records: list[Record], card: Card, conduct: Conduct) -> float:
    found = predicted(records, card, conduct, None)
    assert found is not None
    return found.seconds


@pytest.mark.parametrize("way", WAYS)
def test_a_step_takes_its_joules_over_the_limit(way: Way) -> None:
    # 1.1 TFLOP at 2 pJ are 2.2 J: 22 ms at 100 W
    assert seconds([product()], limited(100), Conduct(way=way)) == pytest.approx(FLOPS * 2e-12 / 100)
    assert FLOPS * 2e-12 / 100 > FLOPS / (100 * TERA)


def test_what_moves_bytes_draws_a_share_of_the_limit() -> None:
    graph, both = Conduct(way="graph"), [product(), moving()]
    alone, fast = seconds([moving()], limited(None), ALONE), seconds(both, limited(None), graph)
    # half of 110 W for some 40 ms leave enough for the 2.2 J of the product, 19 of 20 W do not
    assert 0.5 * alone + FLOPS * 2e-12 / 110 < fast
    assert seconds(both, limited(110), graph) == fast
    assert seconds(both, limited(110, busy=0.95), graph) == pytest.approx(0.95 * alone + FLOPS * 2e-12 / 110)


def test_a_card_with_fewer_watts_for_a_unit_takes_fewer_joules_for_a_flop() -> None:
    # Half a watt for a unit is a quarter of 2, and its root is a half: 1 pJ, 22 ms at 50 W.
    assert seconds([product()], limited(50, falls=0.5), Conduct(way="graph")) == pytest.approx(FLOPS * 1e-12 / 50)


def test_attention_takes_more_for_each_of_its_flop() -> None:
    q = tensor(1, 64, 8192, 128, dtype="bf16")
    what = recorded(call("attention", q, query=q, key=q, value=q, mask=None, causal=False))
    flops = 4 * 64 * 8192**2 * 128
    assert seconds([what], limited(100), Conduct(way="graph")) == pytest.approx(flops * 4e-12 / 100)


def test_pieces_alone_other_types_and_unknown_limits_are_not_held_back() -> None:
    graph = Conduct(way="graph")
    assert seconds([product()], limited(100), ALONE) == seconds([product()], limited(None), ALONE)
    assert seconds([product("fp32")], limited(100), graph) == seconds([product("fp32")], limited(None), graph)
    assert seconds([product()], limited(None), graph) < FLOPS * 2e-12 / 100


def test_only_hopper_knows_what_it_draws() -> None:
    names = ("power.product", "power.attention", "power.busy")
    assert {name for name in generations() if any(generation(name).values[its] for its in names)} == {"hopper"}
