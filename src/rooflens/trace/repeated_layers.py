"""Equal layers run once: the first two of a kind run, and each later one gets copies of the operations of these.

A layer gets copies if its module equals that of the layers before, and its arguments have the same sizes. The copies
have the same shapes, and read the layer's own parameters and its own part of the cache. The code around the layers is
always run, so rooflens sees where it leaves a layer out, or calls it with another mask or other sizes. A layer runs if
rooflens cannot tell that it would do the same.

Where only sums are asked for, the copies are not listed (see `StandIns`). Then the first three layers run, and the last
one: the sums check that the second, the third and the last need the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from rooflens.records import Access, Cached, Mask, Operation
from rooflens.trace.called_modules import CalledModules
from rooflens.trace.equal_modules import equal_modules, own_tensors, places
from rooflens.trace.lifetimes import Lifetimes, MadeBlock
from rooflens.trace.modules import ModulePaths
from rooflens.trace.recorder import Recorder
from rooflens.trace.seen_calls import (
    BlockRole,
    CallArguments,
    HandedBack,
    NewTensor,
    NotRepeated,
    SeenCall,
    SeenOperation,
    Unlike,
    cached_tensors,
    output_of,
    rebuilt,
    roles_in,
    shared,
    touched_by,
)
from rooflens.trace.stand_ins import StandIns


class RepeatedLayers:
    """Runs equal layers of a model once in a trace.

    Attributes:
        stand_ins: of which layers the operations stand for those of others; None where each layer's are listed.
    """

    def __init__(
        self,
        paths: ModulePaths,
        called: CalledModules,
        lifetimes: Lifetimes,
        recorder: Recorder,
        masks: Sequence[Mask],
        summing: bool,
    ) -> None:
        self.stand_ins = StandIns(lifetimes, recorder) if summing else None
        self._paths, self._called = paths, called
        self._lifetimes, self._recorder, self._masks = lifetimes, recorder, masks
        self._first: dict[Hashable, tuple[SeenCall, ...]] = {}
        self._known: dict[Hashable, SeenCall | None] = {}
        self._before: dict[nn.Module, tuple[int, ...]] = {}
        self._taken: set[nn.Module] = set()
        self._used: dict[int, SeenCall] = {}
        self._copies: dict[int, list[int]] = {}
        self._late: list[tuple[int, int]] = []
        self._kinds: dict[Hashable, int] = {}
        self._running = False

    def take_over(self, root: nn.Module) -> None:
        """Let equal layers of a module take over, until whoever traces it puts its attributes back."""
        equal = equal_modules(root)
        if self.stand_ins is not None:
            self.stand_ins.ends = set({kind: module for module, kind in equal.items()}.values())
        for module, kind in equal.items():
            vars(module)["forward"] = self._instead(module, kind, module.forward)

    @property
    def used(self) -> bool:
        """True if some layer did not run."""
        return bool(self._taken)

    def _instead(self, module: nn.Module, kind: Hashable, forward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(forward)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._running or torch.is_grad_enabled():
                return forward(*args, **kwargs)
            given = CallArguments(args, kwargs)
            history = self._before.get(module, ())
            told = given.kind(places(module), first=not history)
            key = (kind, history, self._recorder.is_watching(), told, torch.is_autocast_enabled("cpu"))
            self._before[module] = (*history, self._kinds.setdefault(key, len(self._kinds)))
            template = self._known.get(key)
            if template is not None and (self.stand_ins is None or self.stand_ins.may_stand(template, module)):
                return self._take_over(template, module, given)
            if module in self._taken:
                raise NotRepeated
            return self._run(module, key, given, lambda: forward(*args, **kwargs))

        return call

    def _run(self, module: nn.Module, key: Hashable, given: CallArguments, call: Callable[[], Any]) -> Any:
        """Run a layer, and keep what it did if the others may take it over."""
        watch, masks = _Watch(self._paths, self._lifetimes, self._recorder), len(self._masks)
        self._running = True
        try:
            output = call()
        finally:
            self._running = False
        if key in self._known:
            return output
        try:
            if len(self._masks) > masks:
                raise Unlike
            seen = watch.seen(module, given, output)
            before = self._first.get(key, ())
            if len(before) == (1 if self.stand_ins is None else 2):
                self._known[key] = shared(before[-1], seen, self._lifetimes)
            elif before:
                shared(before[-1], seen, self._lifetimes)
            self._first[key] = (*before, seen)
        except Unlike:
            self._known[key] = None
        return output

    def _take_over(self, template: SeenCall, module: nn.Module, given: CallArguments) -> Any:
        """Note what a layer does, and return what it returns."""
        self._taken.add(module)
        results: dict[int, Tensor] = {}

        def made(leaf: Any) -> Any:
            if isinstance(leaf, HandedBack):
                return given.leaves[leaf.place]
            if not isinstance(leaf, NewTensor):
                return leaf
            assert given.fake is not None
            tensor = leaf.new(given.fake)
            if leaf.made is not None:
                results[leaf.made] = tensor
            return tensor

        output = rebuilt(template.output, made)
        if self._recorder.is_watching():
            self._note(template, module, given, results)
        return output

    def _note(self, template: SeenCall, module: nn.Module, given: CallArguments, results: dict[int, Tensor]) -> None:
        """Note the operations and the memory of a call that did what another one did."""
        lifetimes = self._lifetimes
        self._used.setdefault(id(template), template)
        states = [self._like(number) for number in template.states]
        held, begin = lifetimes.held, lifetimes.clock
        for (_, n), moment in template.died:
            lifetimes.end(states[n], begin + moment)
        first = lifetimes.replay(template.made, template.moments, results)
        for n in template.kept:
            self._copies.setdefault(template.first + n, []).append(first + n)
        path = self._paths.current
        self._recorder.count_again(template.views, template.module_calls, path)
        self._called.again(template.path, path)
        if self.stand_ins is not None:
            self.stand_ins.stand(template, path, given, first)
            return
        own = list(own_tensors(module))

        def block(role: BlockRole) -> int:
            whose, n = role
            if whose in ("own", "given"):
                return lifetimes.number(own[n] if whose == "own" else given.leaves[n])
            return {"made": first + n, "state": states[n] if whose == "state" else 0, "other": n}[whose]

        for done in template.operations:
            self._recorder.add(_again(done, path, block), held + done.held)

    def _like(self, other: int) -> int:
        """The number of a block that is there when the step begins, like another one."""
        number = self._lifetimes.add_like(other)
        self._copies.setdefault(other, []).append(number)
        self._late.append((len(self._recorder.operations), self._lifetimes.blocks[number].nbytes))
        return number

    def finish(self, cache: Sequence[Cached]) -> tuple[Cached, ...]:
        """Settle what is known only when the step has ended, and return the whole cache of which a part is given.

        Raises:
            NotRepeated: what layers took over is not all that they do.
        """
        if not self._used:
            return tuple(cache)
        if self.stand_ins is not None:
            earlier = {seen[-1].begin: seen[-2] for seen in self._first.values() if len(seen) > 1}
            self.stand_ins.settle([one for one in self._known.values() if one is not None], earlier)
        blocks, operations = self._lifetimes.blocks, self._recorder.operations
        for template in self._used.values():
            mine = range(template.begin, template.begin + len(template.operations))
            dead = {n for (_, n), _ in template.died}
            lasting = [number for n, number in enumerate(template.states) if n not in dead]
            lasting += [template.first + n for n in template.kept]
            others = (o for n, o in enumerate(operations) if n not in mine)
            read = {access.block for operation in others for access in operation.reads}
            if any(blocks[number].death is not None for number in lasting) or read.intersection(lasting):
                raise NotRepeated
        touched = {access.block for operation in operations for access in operation.reads}
        touched |= {block for calls in self._first.values() for call in calls for block in call.untouched}
        if any(part.nbytes and part.block not in touched for part in cache):
            raise NotRepeated
        for number, copies in self._copies.items():
            for copy in copies:
                blocks[copy].cause = blocks[number].cause
        for before, nbytes in self._late:
            self._recorder.held[:before] = [held + nbytes for held in self._recorder.held[:before]]
        more = (replace(part, block=copy) for part in cache for copy in self._copies.get(part.block, ()))
        return (*cache, *more)

    def times(self, tensor: Tensor) -> int:
        """Of how many layers a tensor of a cache stands for the same."""
        return 1 + len(self._copies.get(self._lifetimes.number(tensor), ()))


class _Watch:
    """Sees what a call does."""

    def __init__(self, paths: ModulePaths, lifetimes: Lifetimes, recorder: Recorder) -> None:
        self._path, self._lifetimes, self._recorder = paths.current, lifetimes, recorder
        self._begin, self._first = len(recorder.operations), len(lifetimes.blocks)
        self._clock, self._held, self._alive = lifetimes.clock, lifetimes.held, lifetimes.lasting
        self._counts = recorder.counts

    def seen(self, module: nn.Module, given: CallArguments, output: Any) -> SeenCall:
        """What it did.

        Raises:
            Unlike: more than can be told.
        """
        lifetimes, recorder, first = self._lifetimes, self._recorder, self._first
        roles = roles_in(module, given, lifetimes)
        made = tuple(
            MadeBlock(
                block.size,
                (block.birth or 0) - self._clock,
                None if block.death is None else block.death - self._clock,
            )
            for block in lifetimes.blocks[first:]
        )
        died = [(roles.get(n, ("other", n)), n) for n in sorted(self._alive - lifetimes.lasting)]
        operations = zip(recorder.operations[self._begin :], recorder.held[self._begin :], strict=True)
        touched = {a.block for o in recorder.operations[self._begin :] for a in (*o.reads, *o.writes)}
        cached = dict.fromkeys(map(lifetimes.number, cached_tensors(module, given)))
        views, calls = (
            tuple(((self._below(path), phase), n) for (path, phase), n in more.items())
            for more in (now - before for now, before in zip(recorder.counts, self._counts, strict=True))
        )
        return SeenCall(
            path=self._path,
            operations=tuple(
                SeenOperation(
                    operation=operation,
                    layout=operation.call.layout,
                    path=self._below(operation.path),
                    reads=touched_by(operation.reads, roles, first),
                    writes=touched_by(operation.writes, roles, first),
                    held=held - self._held,
                )
                for operation, held in operations
            ),
            begin=self._begin,
            made=made,
            first=first,
            moments=lifetimes.clock - self._clock,
            died=tuple((role, (lifetimes.blocks[n].death or 0) - self._clock) for role, n in died),
            views=views,
            module_calls=calls,
            untouched=tuple(n for n in cached if n < first and lifetimes.is_cached(n) and n not in touched),
            output=output_of(output, given, first if recorder.is_watching() else None, lifetimes),
        )

    def _below(self, path: str) -> str:
        if path != self._path and not path.startswith(f"{self._path}."):
            raise Unlike
        return path.removeprefix(self._path)


def _again(done: SeenOperation, path: str, block: Callable[[BlockRole], int]) -> Operation:
    reads, writes = (
        tuple(Access(block(touched.role), touched.nbytes, touched.elements) for touched in accesses)
        for accesses in (done.reads, done.writes)
    )
    return replace(done.operation, path=path + done.path, reads=reads, writes=writes)
