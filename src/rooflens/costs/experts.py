"""Experts that are hit: of E experts, those that some of a step's tokens are sent to.

A router picks k of E experts for each of n tokens. Which ones depends on the tokens. The convention is a router that is
fair: every choice of k is as likely as any other, and tokens are independent. Then E (1 - (1 - k / E)^n) experts are
expected to be hit, never more than n k, and the weights of these have to be read. Code that sends every token to every
expert computes n E rows, of which n k are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from rooflens.costs.registry import Need, cost, family_of
from rooflens.records import Access, Call, Operation, Tensor

EXPERTS_HIT = (
    "experts: the bound reads those that a fair router is expected to hit, E (1 - (1 - k / E)^n) of E for n tokens with"
    " k each"
)
_ONCE = " Each token is read once, by its index."
_GROUPED = {"_grouped_mm": "mat2", "_scaled_grouped_mm": "mat2", "grouped_mm_fallback": "weight"}
"""Products of rows with the matrices of their groups, and the argument that has the matrices."""


@dataclass(frozen=True, slots=True)
class _Routing:
    """n tokens with k experts each."""

    tokens: int
    chosen: int

    def hit(self, experts: int) -> float:
        """Experts that are expected to be hit."""
        return experts * (1 - (1 - min(1.0, self.chosen / experts)) ** self.tokens)


def expert_needs(operations: Sequence[Operation], *, serving: bool = False) -> Iterator[tuple[int, Need]]:
    """What products with experts need, by index, where the weights of fewer are expected to be read than are there.

    Args:
        serving: of prefill or decode, whose products read tokens by their indices, without a copy for each expert.
    """
    routings: dict[int, _Routing] = {}
    copies: dict[int, Tensor] = {}
    sent: dict[int, Access] = {}
    dense = _DenseExperts(serving)
    for index, operation in enumerate(operations):
        call = operation.call
        if call.name == "topk" and call.outputs[0].elements:
            chosen = call.outputs[0].shape[-1]
            routing = _Routing(call.outputs[0].elements // max(1, chosen), chosen)
            routings[call.outputs[0].elements] = routing
            dense.choose(operation, routing)
        elif call.name in _GROUPED:
            less = sum(r.nbytes - sent[r.block].nbytes for r in operation.reads if r.block in sent)
            yield from _grouped(index, call, call.tensor(_GROUPED[call.name]), routings, less)
        elif call.name in ("index", "index_select") and not call.weight_reads:
            tokens, rows = operation.reads[0], operation.writes[0]
            if serving and tokens.elements < rows.elements:
                sent[rows.block] = tokens
        elif call.name in ("index", "index_select") and call.weight_reads and len(call.tensor("self").shape) == 3:
            copies[operation.writes[0].block] = call.tensor("self")
            formula = "The product that follows can read the experts that are hit: their weights need no copies."
            yield index, Need(bytes=0, cause="expansion", formula=formula)
        elif call.name in ("bmm", "baddbmm"):
            yield from _copied(index, operation, copies, routings)
        dense.follow(index, operation)
    yield from dense.needs()


def _grouped(
    index: int, call: Call, matrices: Tensor, routings: dict[int, _Routing], less: int
) -> Iterator[tuple[int, Need]]:
    """A grouped product reads the matrices of groups with rows.

    Args:
        less: bytes that it saves by reading each token once, and not a copy of it for each expert.
    """
    rows = call.tensor("self" if call.get("self") else "input")
    routing = routings.get(rows.elements // max(1, rows.shape[-1]))
    if routing is None or len(rows.shape) != 2 or len(matrices.shape) != 3:
        return
    experts = matrices.shape[0]
    read = min(experts, rows.shape[0]) if call.name != "grouped_mm_fallback" else experts
    hit, one = routing.hit(experts), matrices.nbytes / experts
    moved = cost(call).work.bytes["dram"] - (read - hit) * one - less
    flops = None
    if call.get("weights_group_size"):  # weights that are dequantised one by one
        flops = dict(cost(call).work.flops)
        flops["vector.fp32"] *= hit / read
    told = f"{_told(routing, experts, hit, one)}{_ONCE if less else ''}"
    yield index, Need(flops=flops, bytes=int(moved), cause="idle experts", formula=told)


def _copied(
    index: int, operation: Operation, copies: dict[int, Tensor], routings: dict[int, _Routing]
) -> Iterator[tuple[int, Need]]:
    """A product with a copy of an expert's weights for each token reads each expert that is hit once."""
    read = next((access for access in operation.reads if access.block in copies), None)
    if read is None:
        return
    matrices = copies[read.block]
    experts, one = matrices.shape[0], matrices.nbytes / max(1, matrices.shape[0])
    rows = round(read.nbytes / one)
    routing = routings.get(rows, _Routing(rows, 1))
    hit = routing.hit(experts)
    moved = cost(operation.call).work.bytes["dram"] - read.nbytes + hit * one
    yield index, Need(bytes=int(moved), cause="idle experts", formula=_told(routing, experts, hit, one))


@dataclass(frozen=True, slots=True)
class _Rows:
    """A row for each token and each expert.

    Attributes:
        sources: places of the operations that begin them.
        experts: their number.
        needed: rows of a token that have to move: one where they are alike and read by its index, else one for each
            expert that it is sent to.
    """

    sources: frozenset[int]
    routing: _Routing
    experts: int
    needed: int

    @property
    def tokens(self) -> int:
        return self.routing.tokens

    @property
    def idle(self) -> float:
        """Share of the rows that nobody needs."""
        return 1 - self.needed / self.experts

    def after(self) -> _Rows:
        """The rows that are computed of these."""
        return replace(self, needed=self.routing.chosen)

    def beside(self, others: Iterable[_Rows]) -> _Rows:
        """The rows that are computed of these and others, as of a gate and what it lets through."""
        alike = [rows for rows in others if (rows.routing, rows.experts) == (self.routing, self.experts)]
        return replace(self, sources=self.sources.union(*(rows.sources for rows in alike)))


_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
_PASSES = frozenset({"elementwise", "copy", "reduction"})
"""Families that pass over the rows of experts beside their products."""


class _DenseExperts:
    """Follows rows that are made for every token and every expert, and the products with all experts at once.

    They are rows of experts where scores or places that the router chose meet them: heads have matrices of their own,
    too, and may be as many.
    """

    def __init__(self, serving: bool) -> None:
        self._serving = serving
        self._routings: dict[tuple[int, int], _Routing] = {}
        self._rows: dict[int, _Rows] = {}
        self._maybe: dict[int, _Rows] = {}
        self._casts: dict[int, tuple[int, Operation]] = {}
        self._matrices: dict[tuple[int, ...], frozenset[int]] = {}
        self._found: list[tuple[frozenset[int], int, Need]] = []
        self._multiplied: set[int] = set()
        self._scores: set[int] = set()
        self._weighed: set[int] = set()

    def needs(self) -> Iterator[tuple[int, Need]]:
        """What operations need, by index, whose rows some product multiplies with experts, and a router weighs."""
        experts = self._multiplied & self._weighed
        yield from ((index, need) for sources, index, need in self._found if sources & experts)

    def choose(self, operation: Operation, routing: _Routing) -> None:
        """Remember a choice of some of several experts."""
        experts = operation.call.tensor("self").shape[-1:]
        if experts and routing.chosen < experts[0]:
            self._routings[experts[0], routing.tokens] = routing
            self._scores |= {access.block for access in operation.writes}

    def follow(self, index: int, operation: Operation) -> None:
        """Find out whether an operation makes such rows, passes over them or multiplies them."""
        if not self._routings:
            return
        self._weigh(operation)
        call, family = operation.call, family_of(operation.call.name)
        if call.name in _PRODUCTS:
            self._multiply(index, operation)
            return
        if family == "copy" and call.weight_reads:
            self._casts |= {access.block: (index, operation) for access in operation.writes}
            return
        passed = [access for access in operation.reads if access.block in self._rows]
        known = [self._rows[access.block] for access in passed]
        rows = known[0].beside(known) if known else self._spread(index, operation)
        for access in operation.writes:
            self._rows.pop(access.block, None)
        if rows is None:
            self._pass_on(index, operation)
            return
        if family not in _PASSES:
            return
        least = rows.experts * rows.tokens
        made = [a for a in operation.writes if family != "reduction" and a.elements and a.elements % least == 0]
        self._rows |= dict.fromkeys((access.block for access in made), rows)
        self._count_passing(index, operation, rows, (*passed, *made))

    def _weigh(self, operation: Operation) -> None:
        """Follow what is made of a choice, up to a number for each token and expert, and find the rows it meets."""
        read = [access.block for access in operation.reads]
        chosen = self._scores.intersection(read)
        if chosen:
            rows = (one for block in read for one in (self._rows.get(block), self._maybe.get(block)) if one is not None)
            self._weighed.update(*(one.sources for one in rows))
        most = max(experts * tokens for experts, tokens in self._routings)
        for access in operation.writes:
            if chosen and (access.elements <= most or chosen.issuperset(read)):
                self._scores.add(access.block)
            elif operation.call.name != "topk":
                self._scores.discard(access.block)

    def _pass_on(self, index: int, operation: Operation) -> None:
        """Follow what may be rows of experts that lie side by side, while nothing else of its size meets it."""
        made = operation.writes[0] if len(operation.writes) == 1 else None
        whole = [a for a in operation.reads if made is not None and a.elements == made.elements]
        known = [self._maybe[access.block] for access in whole if access.block in self._maybe]
        for access in operation.writes:
            self._maybe.pop(access.block, None)
        if made is None or not known or len(known) < len(whole):
            return
        if family_of(operation.call.name) in ("elementwise", "copy"):
            self._maybe[made.block] = rows = known[0].beside(known)
            self._count_passing(index, operation, rows, (*whole, made))

    def _count_passing(self, index: int, operation: Operation, rows: _Rows, passed: Iterable[Access]) -> None:
        """What is needed of an operation that passes over rows."""
        if not self._serving:  # else the products beside it take it up
            work, share = cost(operation.call).work, rows.routing.chosen / rows.experts
            moved = work.bytes["dram"] - sum(access.nbytes for access in passed) * rows.idle
            flops = {name: count * share for name, count in work.flops.items()}
            need = Need(flops=flops, bytes=int(moved), cause="idle experts", formula=_sent(rows))
            self._found.append((rows.sources, index, need))

    def _spread(self, index: int, operation: Operation) -> _Rows | None:
        """Rows that an operation makes by repeating every token for every expert."""
        if family_of(operation.call.name) != "copy" or len(operation.reads) != 1 or len(operation.writes) != 1:
            return None
        read, written = operation.reads[0].elements, operation.writes[0].elements
        for (experts, tokens), routing in self._routings.items():
            if read and read % tokens == 0 and written == experts * read:
                return _Rows(frozenset([index]), routing, experts, 1 if self._serving else routing.chosen)
        return None

    def _multiply(self, index: int, operation: Operation) -> None:
        """Every row with the matrix of its expert; in training also the gradient of all matrices."""
        call, result, shape = operation.call, operation.writes[0], operation.call.outputs[0].shape
        self._confirm(operation)
        known = [self._rows[access.block] for access in operation.reads if access.block in self._rows]
        casts = [access for access in operation.reads if access.block in self._casts]
        self._rows.pop(result.block, None)
        self._maybe.pop(result.block, None)
        weights = call.weight_reads + sum(access.nbytes for access in casts)
        is_gradient, forward = not weights and tuple(sorted(shape)) in self._matrices, operation.phase == "forward"
        rows = known[0] if known else self._unmarked(index, operation)
        batched = rows is not None and len(shape) == 3 and shape[0] == rows.experts
        if rows is not None and batched and (weights or is_gradient):
            self._multiplied |= rows.sources
        elif known and not self._takes_part(call, known[0], forward=forward, weights=weights):
            return
        elif not known:
            rows = self._side_by_side(index, call) if weights and forward else None
        if rows is None:
            return
        if batched and not forward:  # gradients of rows are made for every expert, too
            others = [access for access in operation.reads if access.nbytes != weights]
            sizes = {operand.elements for operand in _operands(call)}  # a view of the tokens has fewer
            whole = [a for a in others if a.block not in self._rows and a.elements in sizes]
            self._rows |= dict.fromkeys((access.block for access in whole), rows.after())
        hit, work, chosen = rows.routing.hit(rows.experts), cost(call).work, rows.routing.chosen
        moved = work.bytes["dram"] - sum(a.nbytes * r.idle for a in operation.reads if (r := self._rows.get(a.block)))
        if weights:
            shapes = (tuple(sorted(operand.shape)) for operand in _operands(call))
            self._matrices |= {shape: rows.sources | self._matrices.get(shape, frozenset()) for shape in shapes}
            moved -= weights * (1 - hit / rows.experts)
        if weights and (batched or forward):  # else the gradients of all tokens, summed over experts
            (self._rows if batched else self._maybe)[result.block] = rows.after()
            moved -= result.nbytes * rows.after().idle
        share = {"vector.fp32": hit / rows.experts} if call.get("weights_group_size") else {}
        flops = {name: count * share.get(name, chosen / rows.experts) for name, count in work.flops.items()}
        told = _told(rows.routing, rows.experts, hit, weights / rows.experts) if weights else _sent(rows)
        need = Need(flops=flops, bytes=int(moved), cause="idle experts", formula=told)
        self._found.append((rows.sources, index, need))
        for place, cast in (self._casts[access.block] for access in casts if not self._serving):
            moved = cost(cast.call).work.bytes["dram"] * hit / rows.experts
            self._found.append((rows.sources, place, replace(need, flops=None, bytes=int(moved))))

    def _confirm(self, operation: Operation) -> None:
        """Take what may be rows of experts for that, if it is multiplied with a matrix for each of them."""
        for access in operation.reads:
            rows, call = self._maybe.get(access.block), operation.call
            alike = [one for one in _operands(call) if one.elements == access.elements]
            if rows is None or not call.weight_reads or call.outputs[0].shape[0] != rows.experts:
                continue
            if any(one.shape[0] == rows.experts and rows.tokens in one.shape[1:] for one in alike):
                found = {block: one for block, one in self._maybe.items() if one.sources <= rows.sources}
                self._rows |= found
                self._maybe = {block: one for block, one in self._maybe.items() if block not in found}

    def _unmarked(self, index: int, operation: Operation) -> _Rows | None:
        """Rows that are one view of the tokens for every expert, or gradients that meet the matrices of experts."""
        for one, other in permutations(_operands(operation.call)):
            is_view = one.strides is not None and one.strides[0] == 0
            known = self._matrices.get(tuple(sorted(other.shape)), frozenset())
            if is_view or known:
                for tokens in one.shape[1:]:
                    routing = self._routings.get((one.shape[0], tokens))
                    if routing is not None:
                        sources = frozenset([index]) if operation.phase == "forward" else known | {index}
                        return _Rows(sources, routing, one.shape[0], 1 if is_view else routing.chosen)
        return None

    def _takes_part(self, call: Call, rows: _Rows, *, forward: bool, weights: int) -> bool:
        """True for a product with rows of all experts at once.

        It is one of gradients and matrices that lie side by side, or the sum over experts of each token's rows, each
        times its share, and the gradients of these.
        """
        matrices = _operands(call) if weights else call.outputs
        if not forward and any(tuple(sorted(one.shape)) in self._matrices for one in matrices):
            return True
        one_each = rows.tokens * rows.experts
        return not weights and any(one.elements == one_each for one in (*_operands(call), *call.outputs))

    def _side_by_side(self, index: int, call: Call) -> _Rows | None:
        """Rows of the tokens and the matrices of all experts in one, if a product with experts follows."""
        *batches, tokens, outputs = call.outputs[0].shape
        for (experts, n), routing in self._routings.items():
            if tokens == n and set(batches) <= {1} and outputs > experts and outputs % experts == 0:
                return _Rows(frozenset([index]), routing, experts, routing.chosen)
        return None


def _operands(call: Call) -> Iterator[Tensor]:
    """The two that a batched product multiplies."""
    names = {"mm": ("self", "mat2"), "bmm": ("self", "mat2"), "addmm": ("mat1", "mat2")}
    yield from map(call.tensor, names.get(call.name, ("batch1", "batch2")))


def _sent(rows: _Rows) -> str:
    n, k, experts = rows.tokens, rows.routing.chosen, rows.experts
    return f"{n:,} tokens are sent to {k} of {experts} experts each: {n * k:,} of {n * experts:,} rows are needed."


def _told(routing: _Routing, experts: int, hit: float, one: float) -> str:
    n, k = routing.tokens, routing.chosen
    return (
        f"{n:,} tokens are sent to {k} of {experts} experts each: {experts} x (1 - (1 - {k} / {experts})^{n}) ="
        f" {hit:.4g} are expected to be hit, {int(one):,} B each."
    )
