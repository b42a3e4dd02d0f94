"""Layers whose operations stand for those of equal ones, where only sums of a step are asked for.

Those of the layer before the last of its kind are counted as often as there are layers like it, and the layers that it
stands for list none. What follows reads what such a layer was given. The last of a kind runs, since other code begins
behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from torch import Tensor, nn

from rooflens.costs.workspaces import CALLS
from rooflens.records import Access
from rooflens.trace.lifetimes import Lifetimes
from rooflens.trace.recorder import Recorder
from rooflens.trace.seen_calls import CallArguments, NewTensor, NotRepeated, SeenCall, leaves


class StandIns:
    """Lets the operations of one layer stand for those of others.

    Attributes:
        ends: the last layers of their kinds.
        neighbours: paths of two layers that did the same, and the operations of the second stand for those of others.
        stood_for: these others, as :class:`rooflens.records.Trace` has them.
    """

    def __init__(self, lifetimes: Lifetimes, recorder: Recorder) -> None:
        self.ends: set[nn.Module] = set()
        self.neighbours: tuple[tuple[str, str], ...] = ()
        self.stood_for: tuple[tuple[int, str, str], ...] = ()
        self._lifetimes, self._recorder = lifetimes, recorder
        self._open: dict[int, bool] = {}
        self._times: Counter[int] = Counter()
        self._through: dict[int, int] = {}

    def may_stand(self, template: SeenCall, layer: nn.Module) -> bool:
        """True unless a layer is the last of its kind."""
        self._open[id(template)] = layer not in self.ends
        return layer not in self.ends

    def stand(self, template: SeenCall, path: str, given: CallArguments, first: int) -> None:
        """Let what a call did stand for a layer: what follows reads what that was given, not what it would have made.

        Args:
            path: of the layer.
            first: number of the first block that it would have made.
        """
        self.stood_for = (*self.stood_for, (len(self._recorder.operations), template.path, path))
        self._times[id(template)] += 1
        for leaf in leaves(template.output):
            if isinstance(leaf, NewTensor) and leaf.made is not None:
                same = next((t for t in given.leaves if isinstance(t, Tensor) and leaf.is_like(t)), None)
                if same is None:
                    raise NotRepeated
                self._through[first + leaf.made] = self._lifetimes.number(same)

    def settle(self, templates: Collection[SeenCall], earlier: Mapping[int, SeenCall]) -> None:
        """Count operations as often as they stand for some, when the step has ended.

        Args:
            templates: the calls of which some stand for others.
            earlier: the call before each of them, by the place of its first operation.

        Raises:
            NotRepeated: what the libraries need beside a step's tensors, or the end of a stack, would not be seen.
        """
        operations, times, neighbours = self._recorder.operations, self._recorder.times, []
        for template in templates:
            more = self._times[id(template)]
            if not more:
                continue
            mine = range(template.begin, template.begin + len(template.operations))
            if self._open[id(template)] or any(operations[n].call.name in CALLS for n in mine):
                raise NotRepeated
            neighbours.append((earlier[template.begin].path, template.path))
            for n in mine:
                times[n] += more
        for n, operation in enumerate(operations):
            reads, writes = (tuple(map(self._passed, part)) for part in (operation.reads, operation.writes))
            if (reads, writes) != (operation.reads, operation.writes):
                operations[n] = replace(operation, reads=reads, writes=writes)
        self.neighbours = tuple(neighbours)

    def _passed(self, access: Access) -> Access:
        block = access.block
        while block in self._through:
            block = self._through[block]
        return access if block == access.block else replace(access, block=block)
