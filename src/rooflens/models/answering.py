"""A whole answer on its device: prefill, and a step of decode for each further token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rooflens.models.kv_caches import Restored, is_fixed, usual_cache
from rooflens.models.step import Step


class AnswerRun:
    """Runs the steps of an answer one by one. A cache of a fixed length serves all answers; any other begins anew."""

    def __init__(self, step: Step, device: str) -> None:
        self._step, self._device, self._name = step, device, str(step.cache)
        self._make = step.empty_cache or (lambda: None)
        self._kept: Any = None
        self._cache: Any = None
        with self._running():
            filled = self._filled(self._make())
        if filled is None:  # the model fills one that is handed to it
            self._make = lambda: usual_cache(step.module)
        elif is_fixed(filled):
            filled.reset()
            self._kept, self._restored = filled, Restored(filled)

    def read(self) -> None:
        """Read the prompt."""
        with self._running():
            self._cache = self._filled(self._make() if self._kept is None else self._kept)

    def write(self, n: int) -> None:
        """Run step `n` of decode."""
        with self._running():
            self._step.module(**self._step.following[n], **{self._name: self._cache})

    def put_back(self) -> None:
        """Forget the answer."""
        self._cache = None
        if self._kept is not None:
            self._restored()

    def _filled(self, cache: Any) -> Any:
        """Run prefill, and return the cache that it has filled."""
        given = {} if cache is None else {self._name: cache}
        filled = self._step.module(**self._step.kwargs, **given).get(self._name)
        return cache if filled is None else filled

    @contextmanager
    def _running(self) -> Iterator[None]:
        with torch.no_grad(), self._step.precision(self._device):
            yield
