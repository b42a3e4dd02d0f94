"""Numbers that remember their arithmetic: the value is that of plain integers, and so is that of the text."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st
from tests.arithmetic import value_of

from rooflens.costs.expression import BYTE, Integer, Product, Spelled, TensorBytes, expression_of, without_labels

ROWS, COLUMNS = Spelled.of(6, "rows"), Spelled.of(4, "columns")


def text(n: int) -> str:
    return str(expression_of(n))


def test_names_stand_behind_their_sizes_and_constants_in_front() -> None:
    assert text(ROWS * COLUMNS * 2) == "2 x 6 (rows) x 4 (columns)"
    assert text(3 * (ROWS + 1)) == "3 x (6 (rows) + 1)"


def test_neighbours_of_one_name_share_it() -> None:
    kernel = (Spelled.of(7, "kernel"), Spelled.of(5, "kernel"))
    assert text(prod((*kernel, COLUMNS))) == "7 x 5 (kernel) x 4 (columns)"


def test_a_cost_of_one_is_shown_and_a_neutral_one_is_not() -> None:
    assert text(1 * (ROWS * COLUMNS)) == "1 x 6 (rows) x 4 (columns)"
    assert text(prod((ROWS, COLUMNS)) * 1) == "6 (rows) x 4 (columns)"


def test_zero_says_nothing() -> None:
    assert (ROWS * 0, 0 * ROWS, text(ROWS + 0), text(0 + ROWS)) == (0, 0, "6 (rows)", "6 (rows)")
    assert text(ROWS - ROWS) == "0"


def test_equal_terms_are_one_and_opposite_ones_cancel() -> None:
    area = ROWS * COLUMNS
    assert text(area + ROWS + area) == "2 x 6 (rows) x 4 (columns) + 6 (rows)"
    assert text(area + ROWS - area) == "6 (rows)"
    assert text(2 * (area + ROWS - area)) == "2 x 6 (rows)"
    assert text(ROWS - 2 * COLUMNS) == "6 (rows) - 2 x 4 (columns)"


def test_common_factors_cancel_in_a_quotient() -> None:
    assert text(ROWS * COLUMNS // COLUMNS) == "6 (rows)"
    assert text(ROWS // ROWS) == "1"
    assert text(ROWS * (ROWS + 1) // 2) == "6 (rows) x (6 (rows) + 1) / 2"
    assert text(ROWS // COLUMNS) == "floor(6 (rows) / 4 (columns))"
    assert text(48 // (ROWS * COLUMNS)) == "48 / (6 (rows) x 4 (columns))"


def test_a_long_sum_ends_in_one_number() -> None:
    # 1 + 2 + 3 are shown, 4 + ... + 9 = 39 are six more.
    sizes = [Spelled.of(n, f"n{n}") for n in range(1, 10)]
    assert text(sum(sizes)) == "1 (n1) + 2 (n2) + 3 (n3) + 39 (6 more)"


def test_bytes_are_the_tensors_with_their_unit() -> None:
    inner = Product((Integer(6, "rows"), Integer(4, "columns"), Integer(2, BYTE)))
    nbytes = Spelled(48, TensorBytes("weight", inner))
    assert text(nbytes) == "6 x 4 x 2 B (weight)"
    assert text(nbytes // (ROWS * COLUMNS)) == "2 B"
    assert str(without_labels(expression_of(nbytes))) == "6 x 4 x 2 B"


def test_other_numbers_end_the_memory() -> None:
    assert type(ROWS * 0.5) is float
    assert ROWS * 0.5 == 3.0


NUMBERS = st.integers(0, 50) | st.builds(Spelled.of, st.integers(0, 50), st.sampled_from(["m", "n", "k"]))


@given(
    st.recursive(
        NUMBERS.map(lambda n: (n, int(n))),
        lambda inner: st.tuples(inner, inner, st.sampled_from(["+", "*", "//"])).map(
            lambda t: (_apply(t[0][0], t[1][0], t[2]), _apply(t[0][1], t[1][1], t[2]))
        ),
        max_leaves=12,
    )
)
def test_value_and_text_are_those_of_plain_arithmetic(pair: tuple[int, int]) -> None:
    spelled, plain = pair
    assert spelled == plain
    assert expression_of(spelled).value == plain
    assert value_of(text(spelled)) == plain


def _apply(left: int, right: int, sign: str) -> int:
    if sign == "+":
        return left + right
    return left * right if sign == "*" else left // max(1, right)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_subtraction(first: int, second: int, third: int) -> None:
    difference = first * second - third * second
    assert expression_of(difference).value == int(first) * int(second) - int(third) * int(second)
    assert value_of(text(difference)) == difference
