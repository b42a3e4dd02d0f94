"""Quantities as text: every prefix there and back, and text that is no quantity."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.errors import UnitError
from rooflens.units import BASE_UNITS, BINARY, DECIMAL, parse, show

# Powers of ten and two, written out again here so that a wrong table cannot agree with itself.
POWERS_OF_TEN = {
    "p": -12,
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def test_the_prefixes_are_powers_of_a_thousand() -> None:
    assert set(POWERS_OF_TEN) == set(DECIMAL)
    for prefix, power in POWERS_OF_TEN.items():
        assert math.isclose(DECIMAL[prefix], 10.0**power, rel_tol=1e-15)


def test_the_binary_prefixes_are_powers_of_1024() -> None:
    assert BINARY == {prefix: 2**power for prefix, power in POWERS_OF_TWO.items()}


@pytest.mark.parametrize("unit", BASE_UNITS)
@pytest.mark.parametrize("prefix", POWERS_OF_TEN)
@settings(max_examples=10)  # of each pair, and there are many pairs
@given(number=st.floats(min_value=1, max_value=999.4))
def test_what_is_shown_can_be_read_back_to_its_digits(unit: str, prefix: str, number: float) -> None:
    value = number * 10.0 ** POWERS_OF_TEN[prefix]
    text = show(value, unit, digits=4)
    assert text.endswith(f" {prefix}{unit}")
    # Half a unit of the fourth digit is at most 0.5 / 1000 of the value.
    assert math.isclose(parse(text, unit), value, rel_tol=0.5001e-3)


@given(value=st.floats(min_value=1e-11, max_value=9e20), digits=st.integers(1, 15), sign=st.sampled_from([1, -1]))
def test_any_number_of_digits_and_either_sign(value: float, digits: int, sign: int) -> None:
    read = parse(show(sign * value, "FLOP/s", digits), "FLOP/s")
    assert math.isclose(read, sign * value, rel_tol=0.5001 * 10.0 ** (1 - digits))


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_show_never_fails_and_parse_reads_it(value: float) -> None:
    read = parse(show(value, "B", 17), "B")
    # 17 digits hold any double; below a pico only decimals are left, and a product with 1e-12 can underflow.
    assert math.isclose(read, value, rel_tol=1e-15, abs_tol=1e-300)


@pytest.mark.parametrize("prefix", POWERS_OF_TWO)
@settings(max_examples=20)
@given(number=st.floats(min_value=0, max_value=1e6, allow_subnormal=False))
def test_binary_prefixes_are_read_for_bytes_only(prefix: str, number: float) -> None:
    text = f"{number!r} {prefix}"
    expected = number * 2 ** POWERS_OF_TWO[prefix]
    assert parse(text + "B", "B") == expected
    assert parse(text + "B/s", "B/s") == expected
    with pytest.raises(UnitError, match="is not in FLOP"):
        parse(text + "FLOP", "FLOP")


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("19.5 TFLOP/s", "FLOP/s", 19.5e12),
        ("19.5TFLOP/s", "FLOP/s", 19.5e12),
        ("  1e3 B  ", "B", 1000.0),
        (".5 kHz", "Hz", 500.0),
        ("-2. ms", "s", -0.002),
        ("624 TOP/s", "FLOP/s", 624e12),
        ("3 kbytes", "B", 3000.0),
        ("2039 Gbyte/s", "B/s", 2039e9),
        ("64 FLOP/byte", "FLOP/B", 64.0),
        ("40 GiB", "B", 42_949_672_960.0),
    ],
)
def test_spellings(text: str, unit: str, value: float) -> None:
    assert math.isclose(parse(text, unit), value, rel_tol=1e-15)


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("", "B", "cannot read '' as a quantity in B"),
        ("fast", "FLOP/s", "cannot read 'fast'"),
        ("1,5 GB", "B", "cannot read '1,5 GB'"),
        ("1 G B", "B", "cannot read '1 G B'"),
        ("nan B", "B", "cannot read 'nan B'"),
        ("5", "B", "'5' is not in B"),
        ("5 G", "B", "'5 G' is not in B"),
        ("5 XB", "B", "'5 XB' is not in B"),
        ("5 gb", "B", "'5 gb' is not in B"),
        ("5 KB", "B", "'5 KB' is not in B"),
        ("5 GB/s", "B", "'5 GB/s' is not in B"),
        ("5 GB/s", "s", "'5 GB/s' is not in s"),
        ("5 FLOP/s", "s", "'5 FLOP/s' is not in s"),
        ("5 TFLOPS", "FLOP/s", "'5 TFLOPS' is not in FLOP/s"),
        ("5 MMFLOP", "FLOP", "'5 MMFLOP' is not in FLOP"),
        ("5 kis", "s", "'5 kis' is not in s"),
        ("50", "s", "'50' is not in s; write it like '1.5 ms' (prefixes p n u m k M G T P E)"),
        ("soon", "s", "cannot read 'soon' as a quantity in s; write a number and a unit, like '1.5 ms'"),
        ("50", "B", "'50' is not in B; write it like '1.5 GB' (prefixes p n u m k M G T P E, binary Ki Mi Gi Ti)"),
        ("1e400 B", "B", "'1e400 B' is beyond what a number can hold"),
        ("1e300 EB", "B", "'1e300 EB' is beyond what a number can hold"),
        ("1e-400 B", "B", "'1e-400 B' is beyond what a number can hold"),
        ("1e9999999999999999999 B", "B", "'1e9999999999999999999 B' is beyond what a number can hold"),
        ("1e-9999999999999999999 B", "B", "'1e-9999999999999999999 B' is beyond what a number can hold"),
        ("5 m", "m", "unknown base unit 'm'; known: FLOP/s"),
    ],
)
def test_text_that_is_no_quantity(text: str, unit: str, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text, unit)
    assert str(caught.value).startswith(message)


@given(text=st.text(), unit=st.sampled_from(BASE_UNITS))
def test_any_text_gives_a_number_or_a_unit_error(text: str, unit: str) -> None:
    try:
        value = parse(text, unit)
    except UnitError:
        return
    assert math.isfinite(value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "-"),
        (0, "FLOP", "0 FLOP"),
        (0.0, "", "0"),
        (1, "", "1.000"),
        (928_805_552_128, "FLOP", "928.8 GFLOP"),
        (999_949, "B", "999.9 kB"),
        (999_950, "B", "1.000 MB"),  # rounds up into the next prefix, never "1000 kB"
        (0.0125, "s", "12.50 ms"),
        (3e-15, "s", "0.003000 ps"),  # below the last prefix
        (4.2e22, "FLOP", "42000 EFLOP"),  # above it
        (1e294, "s", "1.000e+294 s"),  # where digits would fill lines with zeros
        (-2.5e-300, "s", "-2.500e-300 s"),
        (-1500, "B/s", "-1.500 kB/s"),
        (math.inf, "s", "inf s"),
    ],
)
def test_shown(value: float | None, unit: str, text: str) -> None:
    assert show(value, unit) == text
