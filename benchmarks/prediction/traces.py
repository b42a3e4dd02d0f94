"""Estimates of steps, kept in a folder: each is made once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import rooflens as rl
from rooflens.results import RecordSet

OPTIONS = (*("seq_len", "kv_cache", "optimizer", "img_size", "channels_last", "compile", "prompt_len", "output_len"),)
LANGUAGE = ("prefill", "decode", "generate")


class Traces:
    """A folder of estimates."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def step(self, case: Mapping[str, Any], *, captured: bool = False) -> RecordSet:
        """The estimate of a step: of a model, mode, element type and batch, with options.

        Args:
            captured: a language model's step as transformers runs it while a CUDA graph is captured.
        """
        options = {name: case[name] for name in OPTIONS if case.get(name)}
        language = case["mode"] in LANGUAGE
        parts = [case["model"], case["dtype"], case["mode"], case["batch"]]
        parts += [f"{name}={value}" for name, value in sorted(options.items())]
        parts += ["5.17", *(["captured"] if captured else [])] if language else []
        path = self.folder / f"{'-'.join(map(str, parts)).replace(':', '_').replace('/', '_')}.jsonl"
        if not path.exists():
            with transformers_5_17(captured=captured) if language else ExitStack():
                made = rl.estimate(
                    case["model"], batch=case["batch"], dtype=case["dtype"], mode=case["mode"], **options
                )
            made.save(path)
        return _read(path)


@lru_cache(maxsize=4)
def _read(path: Path) -> RecordSet:
    """The records of a file; the same one is asked for several times in a row."""
    records = rl.read(path)
    assert isinstance(records, RecordSet)
    return records


@contextmanager
def transformers_5_17(*, captured: bool) -> Iterator[None]:
    """Let transformers do what the release did by which language models were timed.

    Under a mask it repeats keys and values for each query head, where later ones fold queries. While a CUDA graph is
    captured it always makes a mask: it looks at no values then, and so does not find that causality is all of it.
    """
    from transformers import masking_utils
    from transformers.integrations import sdpa_attention

    with ExitStack() as changes:
        changes.enter_context(patch.object(sdpa_attention, "is_torchdynamo_compiling", lambda: True, create=True))
        if captured:
            changes.enter_context(patch.object(masking_utils, "_ignore_causal_mask_sdpa", lambda *_, **__: False))
        yield
