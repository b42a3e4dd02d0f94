"""The expected time of an operation tells its effect and the terms that it was made of."""

from __future__ import annotations

import re
from dataclasses import replace
from math import isclose

import pytest
from tests.ranked_steps import TERA, a_card, relu_on, steps
from tests.test_predict import card, device

import rooflens as rl
from rooflens.costs import Arithmetic, cost
from rooflens.errors import MissingCeiling
from rooflens.explanation import Explanation
from rooflens.predict import (
    CallOnDevice,
    Combined,
    Form,
    Term,
    card_of,
    constants_of,
    constants_of_form,
    expected_seconds,
    form_of,
    generation,
    telling,
)
from rooflens.predict.card import Card
from rooflens.predict.fitting import priced
from rooflens.predict.power import joules
from rooflens.predict.processor_suite import processor_suite
from rooflens.predict.suite import suite
from rooflens.predict.suite_calls import NHWC, SuiteCall, both_gradients, convolved, dense, made
from rooflens.predict.terms import Told, composed, joined, longest, named
from rooflens.records import Case, Record


def value(form: Form) -> float:
    """The seconds of a form, added up again from its terms."""
    if isinstance(form, Term):
        return form.seconds if form.form is None else form.times * value(form.form)
    parts = [value(part) for part in form.parts]
    if form.how == "sum":
        return sum(parts)
    return max(parts) if form.how == "longest" else float(sum(p**form.exponent for p in parts) ** (1 / form.exponent))


def form_in(seconds: float) -> Form:
    form = form_of(seconds)
    assert form is not None
    return form


def test_numbers_know_how_they_were_made() -> None:
    start, rate = Told.constant("product.start", 3.0), Told.constant("product.rate", 0.5)
    bytes_, arithmetic = named("bytes", 2.0 / rate, nbytes=2), named("arithmetic", 8.0 * rate * rate, tile="8x8")
    assert (float(bytes_), float(arithmetic)) == (4.0, 2.0)
    found = 2 * start + longest(bytes_, arithmetic) * 3
    assert found == 2 * 3 + 3 * 4
    assert form_in(found) == Combined(
        "sum",
        (
            Term(seconds=6.0, times=2.0, constants=("product.start",)),
            Combined(
                "longest",
                (
                    Term(name="bytes", seconds=12.0, times=3.0, details=(("nbytes", 2),), constants=("product.rate",)),
                    Term(
                        name="arithmetic", seconds=6.0, times=3.0, details=(("tile", "8x8"),),
                        constants=("product.rate",),
                    ),
                ),
            ),
        ),
    )  # fmt: skip
    assert constants_of_form(form_in(found)) == ("product.start", "product.rate")
    norm = joined(3, bytes_, arithmetic)
    assert isclose(norm, (64 + 8) ** (1 / 3))
    assert isinstance(form := form_in(norm), Combined)
    assert (form.how, form.exponent) == ("norm", 3.0)
    assert isclose(joined(2, 3 * start, named("four", 12.0 * start / start)), 15.0)
    twice = composed("bias", start + bytes_) * 2
    assert twice == 14.0
    assert isinstance(term := form_in(twice), Term)
    assert (term.name, term.times, term.seconds) == ("bias", 2.0, 14.0)


def test_plain_numbers_stay_plain() -> None:
    for seconds in (named("bytes", 2.0), composed("bias", 2.0), longest(1.0, 2.0), joined(1, 0.5, 1.5)):
        assert type(seconds) is float
        assert seconds == 2.0
        assert form_of(seconds) is None


def telling_cards() -> dict[str, tuple[Card, list[CallOnDevice]]]:
    """Cards that tell, and calls: of the suites, small and among large tensors, compiled, and in a fused group."""
    calls = [priced(item) for item in suite()[::3]]
    some = calls[::7]
    varied = [c._replace(weights=c.nbytes / 3, held=held) for c in some for held in (1e5, 1e9)]
    varied += [c._replace(compiled=True, own=own) for c in some for own in (0.3, 1.0)]
    host = next(one for one in rl.devices() if one.kind == "cpu")
    processor = card_of(host, constants_of(host).measured({}, host.name, "a suite"))
    gpus = {name: card_of(rl.device(name)) for name in ("h200", "t4")}
    assert processor is not None
    cards = {name: (one, [*calls, *varied]) for name, one in gpus.items() if one is not None}
    return cards | {"cpu": (processor, [priced(item) for item in processor_suite()])}


def test_terms_make_the_same_seconds_again() -> None:
    used: set[str] = set()
    for plain, calls in telling_cards().values():
        told = telling(plain)
        for one in calls:
            seconds = expected_seconds(one, told)
            assert float(seconds).hex() == float(expected_seconds(one, plain)).hex(), one.call
            form = form_in(seconds)
            assert isclose(value(form), seconds, rel_tol=1e-9), one.call
            used.update(constants_of_form(form))
    assert {"product.depth_half", "norm.planes", "attention.flash", "optimizer.start", "processor.start"} <= used


def calls_beyond_the_suites() -> list[CallOnDevice]:
    """Depthwise in fp32 with channels last, int8, a scatter, norms of groups, and a recurrent layer."""
    image, vector = dense(2, 8, 4, 4), dense(8)
    plain = priced(SuiteCall("stream", made("relu", image, self=image)))
    last = convolved(2, 8, 8, 14, groups=8, layout=NHWC)
    normed = made("native_group_norm", image, input=image, weight=vector, bias=vector, group=2)
    product = made("mm", dense(8, 8, dtype="int8"), self=dense(8, 8, dtype="int8"), mat2=dense(8, 8, dtype="int8"))
    steps = made("lstm", dense(5, 2, 8), input=dense(5, 2, 8), layers=1, batch_first=False)
    return [
        *(priced(item) for item in (SuiteCall("depthwise", last), *both_gradients(last))),
        plain._replace(call=normed, family="normalization"),
        plain._replace(call=product, family="matmul", flops={"matmul.int8": 1024.0}),
        plain._replace(call=made("scatter_add", vector, self=vector, src=vector), family="gather"),
        plain._replace(call=steps, family="recurrent", flops={"matmul.fp32": 1024.0}),
    ]


def test_each_constant_is_read() -> None:
    """No constant of a generation is one that no effect and no host reads."""
    read: set[str] = set()

    class Listening(dict[str, float]):
        def __getitem__(self, name: str) -> float:
            read.add(name)
            return super().__getitem__(name)

    calls = [priced(item) for item in (*suite(), *processor_suite())] + calls_beyond_the_suites()
    cards = [plain for plain, _ in telling_cards().values()]
    for listening in [replace(plain, _values=Listening(plain.constants.values)) for plain in cards]:
        for one in calls:
            joules(one, expected_seconds(one, listening), listening)
    of_steps = {name for name in generation("general").values if name.startswith(("host.", "launch."))}
    assert generation("general").values.keys() - of_steps - read == set()


def test_a_product_tells_its_tile_and_its_bytes() -> None:
    # 100 units of 78 GFLOP/s (0.78 of 10 TFLOP/s): 39 G multiply-adds a second each. 16 tiles of 128 x 128, split in 4,
    # are one wave: 128 x 128 x (512 / 4 + 40) / 39 G / 0.95 = 74.29 us, and 4 partial sums of 1024 x 256 x 8 B at
    # 22.1 x 100 GB/s 3.80 more. 3,670,016 B fit the cache: 1.66 us. Joined they are 78.09; the start is 3.24.
    found = rl.explain("mm", shapes=[(1024, 512), (512, 256)], device=device())
    (one,) = found.operations[0].expected
    assert isinstance(one.form, Term)
    assert one.form.name == "product"
    start, norm = one.form.form.parts if isinstance(one.form.form, Combined) else (None, None)
    assert isinstance(start, Term)
    assert isinstance(norm, Combined)
    arithmetic, moving = norm.parts
    assert isinstance(arithmetic, Term)
    assert isinstance(moving, Term)
    assert (start.seconds, arithmetic.name, moving.name) == (card()["product.start"], "arithmetic", "bytes")
    assert dict(arithmetic.details) == {"tile": "128x128", "split": 4, "waves": 1, "at_best": pytest.approx(7.8e12)}
    assert arithmetic.seconds == pytest.approx(78.09e-6, rel=1e-4)
    assert dict(moving.details)["nbytes"] == 3_670_016
    assert moving.seconds == pytest.approx(3_670_016 / (22.1 * 100e9))
    assert one.seconds == pytest.approx(81.33e-6, rel=1e-4)
    assert one.high is not None
    assert one.low < one.seconds < one.high
    assert one.level == "datasheet"
    assert one.constants["product.start"] == card()["product.start"]
    assert one.sources.keys() == one.constants.keys()


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_what_constants_are_in_is_told_once(names: tuple[str, ...]) -> None:
    found = rl.explain("relu", shapes=[(100,)], device=[replace(device(), name=name) for name in names])
    text = " ".join(found.text.split())
    assert [text.count(f"constants on {name}") for name in names] == [1] * len(names)
    assert text.count("Times are in seconds") == 1
    assert text.index("Times are in seconds") > text.rindex("constants on")


def test_a_file_of_several_devices_is_explained_on_that_which_is_asked_for() -> None:
    both = steps(*(relu_on(a_card(name, rate)) for name, rate in (("slow", TERA), ("fast", 2 * TERA))))
    assert re.findall(r"[Ee]xpected on (\w+)", rl.explain(both, path="").text) == ["slow", "fast", "slow", "fast"]
    (fast,) = (device for name, device in both.devices.items() if name == "fast")
    assert re.findall(r"[Ee]xpected on (\w+)", rl.explain(both, path="", device=fast).text) == ["fast", "fast"]


def test_text_and_json_tell_a_stream_by_hand() -> None:
    # 2 x 4 x 10^8 B of 1 TB/s at Hopper's 0.83 take 963.9 us: far more than the cache of 10 MB. The start is 1.49 us.
    found = rl.explain("relu", shapes=[(100_000_000,)], device=device())
    text = [" ".join(line.split()) for line in found.text.splitlines()]
    begin = text.index("Expected on round (datasheet, hopper), by the effect copy or pointwise:")
    assert text[begin + 1 : begin + 3] == ["start 1.490 us", "bytes 963.9 us: 800,000,000 B, at 0.83 of the bandwidth"]
    assert text[begin + 3].startswith("expected start + bytes = 965.3 us (")
    assert "constants on round" in text[begin:]
    (plain,) = found.data[0]["expected"]
    assert (plain["device"], plain["level"], plain["made_of"]["name"]) == ("round", "datasheet", "copy_or_pointwise")
    assert isclose(plain["seconds"], 1.49e-6 + 8e8 / (0.83 * 1e12))
    assert plain["constants"]["stream.start"] == 1.49e-6
    assert isclose(sum(term["seconds"] for term in plain["made_of"]["made_of"]["terms"]), plain["seconds"])


def test_the_terms_are_those_of_the_table_of_operations() -> None:
    records = rl.estimate("resnet18", batch=8, device="h200", dtype="bf16", mode="train")
    found = rl.explain(records, path="layer2.0")
    total = sum(made.seconds * made.calls for one in found.operations for made in one.expected)
    inside = [r for r in records if r.path.startswith("layer2.0") and r.work is not None]
    assert isclose(total, records.sum(inside, rl.device("h200")).predicted_seconds or 0)


def test_layouts_are_told_apart_and_no_number_loses_its_unit() -> None:
    # 2 x 3 M elements of 4 B in and out: dense in one layout, in the other each row begins elsewhere.
    rows = dense(1000, 3000)
    turned = replace(rows, strides=(1, 1000))
    both = tuple(made("clone", rows, self=one) for one in (rows, turned))
    one = cost(both[0], Arithmetic())
    record = Record(
        case=Case(model="two", device="round"), source="estimate", scope="op", kind=one.family, name="clone",
        phase="forward", work=one.work, call=both[0], calls=5, layouts=((both[0], 3), (both[1], 2)),
    )  # fmt: skip
    found = rl.explain(rl.RecordSet([record], devices={"round": device()}))
    plain, transposed = found.operations[0].expected
    assert [(made.calls, "copy.transpose" in made.constants) for made in (plain, transposed)] == [(3, False), (2, True)]
    assert transposed.seconds > plain.seconds
    text = " ".join(found.text.split())
    assert "calls in this layout: 3" in text
    assert "calls in this layout: 2" in text
    assert not [line for line in found.text.splitlines() if line.split()[:1] in (["us"], ["ms"], ["s"])]


def test_layouts_that_take_the_same_terms_are_told_once() -> None:
    # A relu of rows of a wider tensor, 8192 or 16384 numbers apart: the same bytes in rows of the same length.
    rows = dense(1000, 4096)
    calls = tuple(made("relu", rows, self=replace(rows, strides=(apart, 1))) for apart in (8192, 16384))
    one = cost(calls[0], Arithmetic())
    record = Record(
        case=Case(model="two", device="round"), source="estimate", scope="op", kind=one.family, name="relu",
        phase="forward", work=one.work, call=calls[0], calls=5, layouts=((calls[0], 3), (calls[1], 2)),
    )  # fmt: skip
    found = rl.explain(rl.RecordSet([record], devices={"round": device()}))
    assert [told.calls for told in found.operations[0].expected] == [5]
    assert found.text.count("Expected on round") == 1
    assert "in this layout" not in found.text


def test_the_time_of_bytes_alone_is_at_least_what_it_takes() -> None:
    found = rl.explain("linalg_eig", shapes=[(64, 64)], device=device())
    assert "(at least: its FLOP are unknown, and this is the time of its bytes)" in " ".join(found.text.split())
    assert found.data[0]["expected"][0]["high"] is None
    (known,) = rl.explain("relu", shapes=[(64, 64)], device=device()).operations[0].expected
    assert known.high is not None


def test_all_calls_of_an_operation_are_expected() -> None:
    # An answer's steps have records of their own, of equal calls: 1 + 4 dense ones, and 2 whose rows begin elsewhere.
    rows = dense(1000, 3000)
    plain, turned = (made("clone", rows, self=its) for its in (rows, replace(rows, strides=(1, 1000))))
    one = cost(plain, Arithmetic())
    first = Record(
        case=Case(model="two", device="round"), source="estimate", scope="op", kind=one.family, name="clone",
        phase="decode", work=one.work, call=plain, tokens=8,
    )  # fmt: skip
    then = replace(first, tokens=9, calls=6, layouts=((plain, 4), (turned, 2)))
    (found,) = rl.explain(rl.RecordSet([first, then], devices={"round": device()}), path="").operations
    assert found.calls == 7
    assert [made.calls for made in found.expected] == [5, 2]


def test_a_device_without_a_rate_says_so() -> None:
    sheet = device()
    narrow = replace(sheet, ceilings=tuple(c for c in sheet.ceilings if c.resource in ("dram", "matmul.bf16")))
    found = rl.explain("scaled_dot_product_attention", shapes=[(1, 4, 64, 64)] * 3, device=narrow)
    assert found.operations[0].expected == ()
    with pytest.raises(MissingCeiling, match=r"no ceiling for 'matmul\.fp32'"):
        _ = found.text


def name_of(found: Explanation) -> str:
    (one,) = found.operations[0].devices
    return one.name


@pytest.mark.parametrize("name", ["epyc-7763", "tpu-v4"])
def test_a_device_without_expected_times_has_none(name: str) -> None:
    found = rl.explain("mm", shapes=[(64, 64)] * 2, device=name, dtype="bf16" if "tpu" in name else "fp32")
    assert found.operations[0].expected == ()
    assert f"On {name_of(found)} no time is expected: one GPU has expected times" in " ".join(found.text.split())
    assert "xpected on" not in found.text
