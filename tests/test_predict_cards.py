"""What differs between cards of one generation: published rates, clocks, tensor cores at half rate, power, threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.calls import call, tensor
from tests.test_predict import GIGA, TERA, card, device, seconds

import rooflens as rl
from rooflens.predict import card_of, constants_of, generation
from rooflens.predict.card import Card
from rooflens.predict.effects.products import full_rate, tiled
from rooflens.records import Device

SQUARE = call("mm", tensor(8192, 8192), self=tensor(8192, 8192), mat2=tensor(8192, 8192))


def on(made: Device, **constants: float) -> Card:
    values = {name.replace("__", "."): value for name, value in constants.items()}
    found = card_of(made, replace(constants_of(made), values={**constants_of(made).values, **values}))
    assert found is not None
    return found


# Published rates


def test_what_others_measured_of_a_rate_is_the_best_that_is_reached() -> None:
    told = device(dram_copy=0.5 * TERA, matmul_bf16_steady=90 * TERA)
    of = on(told, stream__start=0, stream__share_wide=0.83)  # the share by which 0.5 TB/s is divided
    big = tensor(100_000_000)  # 400 MB in and out
    assert seconds(call("relu", big, self=big), of) == pytest.approx(800e6 / 0.5e12)
    assert full_rate(of, "bf16") == pytest.approx(90 * TERA)
    assert full_rate(of, "fp32") == full_rate(on(device()), "fp32"), "of which nobody has told"


def test_a_card_that_multiplies_faster_than_its_peak_runs_at_a_higher_clock() -> None:
    assert on(device(matmul_bf16_steady=110 * TERA)).cycles == pytest.approx(1.1 * 100 * GIGA)
    assert on(device(matmul_bf16_steady=80 * TERA)).cycles == 100 * GIGA, "a lower rate tells nothing of the clock"


def test_what_was_measured_on_the_device_itself_counts_and_no_fact_beside_it() -> None:
    made = device(dram_copy=0.5 * TERA)
    own = replace(made, ceilings=tuple(replace(c, origin="measured", rate=0.8 * c.rate) for c in made.ceilings))
    assert on(own).dram == pytest.approx(0.8 * TERA / constants_of(own).values["stream.share_wide"])


@pytest.mark.parametrize("name", ["rtx-3090", "rtx-4090", "rtx-5090", "2080-ti"])
def test_geforce_cards_reach_more_than_the_peak_of_their_data_sheet(name: str) -> None:
    of = card_of(rl.device(name))
    assert of is not None
    assert full_rate(of, "fp16") > of.device.require("matmul.fp16").rate


# Tensor cores at half rate


def test_what_a_tile_costs_besides_its_products_takes_no_longer_where_tensor_cores_run_at_half_rate() -> None:
    shape = (8192, 8192, 256)  # 2,048 tiles of 256 x 128 on 100 units: 21 waves
    whole = on(device(), product__rate_half=1, product__unit_half=1000, product__depth_half=64)
    half = on(device(), product__rate_half=1, product__unit_half=2000, product__depth_half=64)
    step = 21 * 256 * 128 / (TERA / 2)  # seconds of a step of the sums, at 1 TFLOP/s of a unit
    assert tiled(whole, "bf16", *shape) == pytest.approx(step * (256 + 64))
    assert tiled(half, "bf16", *shape) == pytest.approx(step * (256 + 32))
    assert tiled(half, "fp32", *shape) == tiled(whole, "fp32", *shape)


def test_attention_is_never_faster_than_the_products_in_it() -> None:
    heads = tensor(64, 100, 1024, 64, dtype="bf16")
    what = call("attention", heads, query=heads, key=heads, value=heads, causal=False)
    flops = 4 * 64 * 100 * 1024 * 1024 * 64
    for share, rate in ((0.4, 0.4), (0.9, 0.95 * 0.6)):
        of = card(attention__flash=share, attention__start=0, product__rate_half=0.6)
        assert seconds(what, of) == pytest.approx(flops / (rate * 100 * TERA))


# Power


def test_a_card_at_its_power_takes_the_energy_of_its_products_whatever_the_tiles() -> None:
    """70 W at 14 pJ are 5 of 10 TFLOP/s; at its full clock the card has room for waves that are not full."""
    of = on(device(power=70), product__joules_fp32=14e-12, product__start=0, product__join=99)
    assert seconds(SQUARE, of) == pytest.approx(2 * 8192**3 / 5e12, rel=1e-3)
    few = call("mm", tensor(128, 12_928), self=tensor(128, 4096), mat2=tensor(4096, 12_928))  # 101 tiles on 100 units
    waves = on(device(power=70), product__joules_fp32=0, product__start=0, product__join=99)
    assert seconds(few, of) == pytest.approx(max(2 * 128 * 12_928 * 4096 / 5e12, seconds(few, waves)), rel=1e-3)


def test_a_card_of_an_unknown_generation_has_no_more_power_either() -> None:
    of = card_of(rl.device("l4"), generation("general"))
    assert of is not None
    assert seconds(SQUARE, of) == pytest.approx(2 * 8192**3 / (72 / 8e-12), rel=0.01)  # 9 of its 30 TFLOP/s


def test_winograd_takes_less_energy_too() -> None:
    images, weight = tensor(256, 256, 56, 56), tensor(256, 256, 3, 3)
    what = call(
        "convolution", images, input=images, weight=weight, bias=None, stride=(1, 1), padding=(1, 1), dilation=(1, 1),
        transposed=False, output_padding=(0, 0), groups=1,
    )  # fmt: skip
    flops = 2 * 256 * 56 * 56 * 256 * 256 * 9
    constants = {"product__joules_fp32": 14e-12, "convolution__start": 0, "convolution__fft_pixels": 0}
    of = on(device(power=70), convolution__winograd=2, convolution__fp32=0.9, **constants)
    assert seconds(what, of) == pytest.approx(flops / 5e12 / 2)


# Rows


@pytest.mark.parametrize(
    ("name", "constant"), [("_softmax", "rows__row_bytes"), ("layer_norm", "norm__row_bytes_wide")]
)
def test_rows_wait_for_the_memory_or_for_the_units(name: str, constant: str) -> None:
    """4 bytes a cycle of 100 units of 1 GHz are 0.4 TB/s, of a memory with 0.8: (1 + 8)^(1/3) of the longer time."""
    rows = tensor(100_000, 2048)
    if name == "_softmax":
        what = call(name, rows, self=rows, dim=-1, half_to_float=False)
    else:
        name = "native_layer_norm"
        what = call(name, rows, input=rows, normalized_shape=(2048,), weight=None, bias=None, eps=1e-5)
    of = card(stream__share_wide=0.8, rows__start=0, norm__row_start=0, **{constant: 4.0})
    in_units = 2 * rows.nbytes / 0.4e12
    assert seconds(what, of) == pytest.approx(in_units * (1 + 1 / 8) ** (1 / 3), rel=1e-3)
    fast = card(stream__share_wide=0.8, rows__start=0, norm__row_start=0, **{constant: 4000.0})
    assert seconds(what, fast) == pytest.approx(2 * rows.nbytes / 0.8e12, rel=1e-3)
