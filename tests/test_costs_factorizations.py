"""Factorizations and solves: LAPACK's counts (Working Note 41), added up column by column here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.counting import Calls
from torch import Tensor

import rooflens as rl
from rooflens.results import RecordSet


def counted(work: Callable[..., object], *inputs: Tensor) -> tuple[int, int, int]:
    """Matrix, vector and special FLOP of the one operation that does any."""
    done: RecordSet = rl.estimate(Calls(lambda s, *given: work(*given)), inputs=inputs)
    assert done.coverage.uncounted == ()
    flops = [record.work.flops for record in done if record.scope == "op" and record.work and record.kind == "matmul"]
    assert len(flops) == 1
    units = ("matmul.fp32", "vector.fp32", "special.fp32")
    return tuple(int(flops[0].get(unit, 0)) for unit in units)  # type: ignore[return-value]


def triangle(n: int) -> int:
    return sum(range(n))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_cholesky(n: int) -> None:
    # Column j: for each element from the diagonal down, j products; the diagonal a root, those below it a quotient.
    macs = sum(j * (n - j) for j in range(n))
    assert counted(torch.linalg.cholesky, torch.eye(n)) == (2 * macs, triangle(n), n)
    # In all n^3 / 3 + n^2 / 2 + n / 6.
    assert 6 * (2 * macs + triangle(n) + n) == 2 * n**3 + 3 * n**2 + n
    stack = torch.eye(n).expand(4, 3, n, n)
    assert counted(torch.linalg.cholesky, stack) == (12 * 2 * macs, 12 * triangle(n), 12 * n)


def eliminated(m: int, n: int) -> tuple[int, int]:
    steps = range(1, min(m, n) + 1)
    return sum((m - k) * (n - k) for k in steps), sum(m - k for k in steps)


@pytest.mark.parametrize(("m", "n"), [(5, 5), (6, 4), (3, 7)])
def test_lu(m: int, n: int) -> None:
    macs, quotients = eliminated(m, n)
    assert counted(torch.linalg.lu_factor, torch.randn(2, m, n)) == (4 * macs, 2 * quotients, 0)
    assert counted(torch.linalg.lu, torch.randn(m, n)) == (2 * macs, quotients, 0)


def test_determinants() -> None:
    macs, quotients = eliminated(5, 5)
    assert (macs, quotients) == (16 + 9 + 4 + 1, 4 + 3 + 2 + 1)
    assert counted(torch.linalg.det, torch.randn(5, 5)) == (60, 10 + 5, 0)
    assert counted(torch.linalg.slogdet, torch.randn(3, 5, 5)) == (180, 3 * 15, 15)


@pytest.mark.parametrize("right", [(5,), (5, 3)])
def test_solves(right: tuple[int, ...]) -> None:
    """Per right side of 5: 4 + 3 + 2 + 1 multiply-adds down, as many up, and 5 quotients."""
    sides = 3 if len(right) == 2 else 1
    assert counted(torch.linalg.solve, torch.eye(5), torch.randn(right)) == (60 + 2 * 20 * sides, 10 + 5 * sides, 0)
    matrix = torch.randn(5, sides)
    pivots = torch.arange(1, 6, dtype=torch.int32)
    solved = counted(torch.linalg.lu_solve, torch.eye(5), pivots, matrix)
    assert solved == (40 * sides, 5 * sides, 0)
    assert counted(torch.cholesky_solve, matrix, torch.eye(5)) == (40 * sides, 10 * sides, 0)


def test_inverses() -> None:
    assert counted(torch.linalg.inv, torch.eye(6).expand(2, 6, 6)) == (2 * 2 * 6**3, 0, 0)
    assert counted(torch.cholesky_inverse, torch.eye(6)) == (2 * 6**3 // 3, 0, 0)


def test_qr() -> None:
    # 6 x 3: 9 x (6 - 1) = 45 multiply-adds for R. Q of 3 columns: 2 x 6 x 3 x 3 - 9 x 9 + 18 = 45; of 6 columns:
    # 2 x 6 x 6 x 3 - 12 x 9 + 18 = 126.
    tall = torch.randn(6, 3)
    assert counted(lambda a: torch.linalg.qr(a, "r"), tall) == (90, 0, 0)
    assert counted(torch.linalg.qr, tall) == (180, 0, 0)
    assert counted(lambda a: torch.linalg.qr(a, "complete"), tall.expand(4, 6, 3)) == (4 * 2 * (45 + 126), 0, 0)
    assert counted(torch.geqrf, torch.randn(3, 6)) == (90, 0, 0)
    assert counted(torch.linalg.householder_product, tall, torch.randn(3)) == (90, 0, 0)


def test_a_gaussian_process_in_training() -> None:
    """10 points, 4 asked for: factor, solve, and their gradients, which are triangular solves and products."""

    def process(s: torch.nn.Module, kernel: Tensor, y: Tensor, cross: Tensor) -> Tensor:
        factor = torch.linalg.cholesky(kernel)
        return cross @ torch.cholesky_solve(y, factor)

    kernel, y, cross = torch.eye(10, requires_grad=True), torch.randn(10, 1), torch.randn(4, 10)
    done = rl.estimate(Calls(process), inputs=(kernel, y, cross), mode="train", optimizer="none")
    assert done.coverage.uncounted == ()
    assert done.total("forward").macs == (10**3 - 10) // 6 + 10 * 9 + 4 * 10


def test_what_iterates_has_no_count() -> None:
    for work, name in ((torch.linalg.svdvals, "_linalg_svd"), (torch.linalg.eigvalsh, "_linalg_eigh")):
        assert rl.estimate(Calls(lambda s, a, work=work: work(a)), inputs=torch.eye(4)).coverage.uncounted == (name,)


def test_it_is_explained_with_its_numbers() -> None:
    text = str(rl.explain("linalg_lu_factor_ex", A=(6, 4)))
    assert f"= {2 * eliminated(6, 4)[0]} FLOP" in text


def test_other_operations_on_the_way() -> None:
    def flops(work: Callable[..., object], *inputs: Tensor) -> float | None:
        done = rl.estimate(Calls(lambda s, *given: work(*given)), inputs=inputs)
        assert done.coverage.uncounted == ()
        return done.total().flops

    x, lengths = torch.randn(6, 4), torch.tensor([2, 4])
    assert flops(lambda a, n: torch.segment_reduce(a, "max", lengths=n), x, lengths) == 24
    assert flops(lambda a, n: torch.segment_reduce(a, "mean", lengths=n), x, lengths) == 24 + 8
    assert flops(torch.nn.functional.pdist, x) == 15 * (3 * 4 + 1)
    index = torch.tensor([0, 2, 2])
    assert flops(lambda a, i, b: a.index_reduce(0, i, b, "prod"), x, index, torch.randn(3, 4)) == 12
    assert flops(lambda a, i, b: a.put(i, b, accumulate=True), x, index, torch.randn(3)) == 3
    assert flops(lambda a, i, b: a.put(i, b), x, index, torch.randn(3)) == 0
    assert flops(torch.special.entr, x) == 2 * 24
    zeros = torch.ops.aten._new_zeros_with_same_feature_meta  # what torch.func.linearize begins its tangents with
    assert flops(lambda a: zeros(a, a), x) == 0
    assert flops(torch.poisson, x.abs()) == 0  # random numbers are integer work
