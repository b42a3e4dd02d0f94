"""Matrix FLOP and cache bytes of the catalogue's models, beside closed forms of their families."""

from __future__ import annotations

import json

import pytest
from benchmarks.known_flops import CACHES, DECODE, MULTIPLY_ADDS, PREFILL, RESULTS, compared, configuration, equal

from rooflens.known_models import known_model, known_models

pytest.importorskip("transformers")
MODELS = {model.name: model for model in known_models()}


def test_every_model_was_estimated_as_its_closed_form_says() -> None:
    rows = {row["name"]: row for row in json.loads(RESULTS.read_text())}
    assert rows.keys() == MODELS.keys()
    assert [name for name, row in rows.items() if not equal(row)] == []
    for name, row in rows.items():
        config, family = configuration(MODELS[name]), MODELS[name].family
        form, cached = MULTIPLY_ADDS[family], CACHES.get(family)
        assert row["flops_by_form"] == 2 * form(config, DECODE), name
        assert row["cache_by_form"] == (None if cached is None else cached(config)), name
        assert row["prefill_by_form"] == (None if cached is None else 2 * form(config, PREFILL)), name


@pytest.mark.parametrize("name", ["gpt2", "gemma-3-1b", "mamba2-130m", "whisper-tiny"])
def test_an_estimate_still_says_so(name: str) -> None:
    model = known_model(name)
    assert model is not None
    assert equal(compared(model))
