"""Factorizations of matrices that take a fixed number of steps, and what is solved with them.

Counts are LAPACK's (Working Note 41): its products are multiply-adds of the matrix unit. Methods that iterate until
they converge, like those of singular values and eigenvalues, have no count.
"""

from __future__ import annotations

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import matrix, pointwise
from rooflens.records import Call, Tensor


def _matrices(tensor: Tensor) -> int:
    """How many matrices a stack holds."""
    rows, columns = tensor.shape[-2:]
    return tensor.elements // max(1, rows * columns)


@register("matmul", "linalg_cholesky_ex")
def cholesky(call: Call) -> Demand:
    """Column by column: (n - 1) n (n + 1) / 6 multiply-adds, n (n - 1) / 2 quotients and n roots."""
    given = call.tensor("self")
    count, n = _matrices(given), given.shape[-1]
    macs = count * ((n - 1) * n * (n + 1) // 6)
    return Demand(flops=matrix(macs, given) | pointwise(given, vector=count * (n * (n - 1) // 2), special=count * n))


@register("matmul", "linalg_lu_factor_ex", "linalg_lu", "_linalg_det", "_linalg_slogdet")
def elimination(call: Call) -> Demand:
    """Gauss: with p = min(m, n), p m n - p (p + 1) (m + n) / 2 + p (p + 1) (2 p + 1) / 6 multiply-adds, and quotients.

    A determinant then multiplies n numbers, or adds their logarithms.
    """
    given = call.tensor("A")
    count, (macs, quotients) = _matrices(given), _elimination(given)
    n = count * given.shape[-1] if "det" in call.name else 0
    logarithms = n if call.name == "_linalg_slogdet" else 0
    return Demand(flops=matrix(macs, given) | pointwise(given, vector=quotients + n, special=logarithms))


def _elimination(given: Tensor) -> tuple[int, int]:
    """Multiply-adds and quotients of a stack: each of p columns below the diagonal, and the rows beside it."""
    count, (m, n) = _matrices(given), given.shape[-2:]
    p = min(m, n)
    macs = p * m * n - p * (p + 1) * (m + n) // 2 + p * (p + 1) * (2 * p + 1) // 6
    return count * macs, count * (p * m - p * (p + 1) // 2)


@register("matmul", "_linalg_solve_ex", "linalg_lu_solve", "cholesky_solve")
def solve(call: Call) -> Demand:
    """Two triangles: n (n - 1) multiply-adds per right side, and n quotients, 2 n of them with a Cholesky factor.

    Without factors, Gauss's elimination comes first.
    """
    right = call.tensor("self" if call.name == "cholesky_solve" else "B")
    factor = call.tensor({"_linalg_solve_ex": "A", "linalg_lu_solve": "LU"}.get(call.name, "input2"))
    n, elements = factor.shape[-1], call.outputs[0].elements
    macs, quotients = _elimination(factor) if call.name == "_linalg_solve_ex" else (0, 0)
    quotients += elements * (2 if call.name == "cholesky_solve" else 1)
    return Demand(flops=matrix(macs + elements * (n - 1), factor) | pointwise(right, vector=quotients))


@register("matmul", "linalg_inv_ex", "cholesky_inverse")
def inverse(call: Call) -> Demand:
    """n^3 multiply-adds, or n^3 / 3 where the matrix is given as its Cholesky factor."""
    given = call.tensor("self" if call.name == "cholesky_inverse" else "A")
    macs = given.elements * given.shape[-1]
    return Demand(flops=matrix(macs // 3 if call.name == "cholesky_inverse" else macs, given))


@register("matmul", "linalg_qr", "geqrf")
def orthogonal(call: Call) -> Demand:
    """Householder: with p the smaller and q the larger side, p^2 (q - p / 3) multiply-adds; Q takes as many again.

    A complete Q of m columns takes 2 p (m^2 - m p + p^2 / 3).
    """
    given = call.tensor("self" if call.name == "geqrf" else "A")
    count, (m, n) = _matrices(given), given.shape[-2:]
    p, q = min(m, n), max(m, n)
    macs = p * p * (3 * q - p) // 3
    mode = "r" if call.name == "geqrf" else call.get("mode", "reduced")
    if mode == "reduced":
        macs += _reflections(m, p, p)
    elif mode == "complete":
        macs += _reflections(m, m, p)
    return Demand(flops=matrix(count * macs, given))


@register("matmul", "linalg_householder_product")
def reflections(call: Call) -> Demand:
    """The first n columns of k reflections of m rows: 2 m n k - (m + n) k^2 + 2 k^3 / 3 multiply-adds."""
    given = call.tensor("input")
    m, n = given.shape[-2:]
    return Demand(flops=matrix(_matrices(given) * _reflections(m, n, call.tensor("tau").shape[-1]), given))


def _reflections(m: int, n: int, k: int) -> int:
    return 2 * m * n * k - (m + n) * k * k + 2 * k * k * k // 3
