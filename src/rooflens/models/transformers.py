"""Decoder-only language models of transformers from their configuration: ``hf:llama``, ``hf:path/config.json``.

Weights are never read, remote code is never trusted, and nothing is fetched.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from rooflens.errors import InvalidValue, MissingDependency
from rooflens.models.asked_caches import asked_cache
from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.configuration import configuration
from rooflens.models.step import cross_entropy
from rooflens.runs.options import GENERATING, Options

DEFAULT_TOKENS = 512
CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")
"""What the cache is called: it changed from one version of transformers to the next. ``state`` is that of RWKV."""
FILLING = {"use_cache": True, "logits_to_keep": 1}
"""Inputs of a run that fills the cache and needs only the last token's logits, where the model can leave out others."""


def blueprint(name: str, options: Options, mode: str) -> Blueprint:
    """Return the blueprint of a causal language model: token ids in, logits out.

    Inference and train are the plain call, which gives the logits of every position and fills a cache if the model's
    configuration says so. Prefill gives the last position's logits only. Decode adds one token to a cache that holds
    `seq_len` of them.

    Raises:
        MissingDependency: transformers is not installed.
        UnknownModel: no such family with a causal language model, and no such file.
        ModelError: the configuration file cannot be used.
    """
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise MissingDependency("building a transformers model", "transformers", "llm") from error
    name, config = configuration(name)
    tokens = options.seq_len or min(DEFAULT_TOKENS, getattr(config, "max_position_embeddings", None) or DEFAULT_TOKENS)
    vocabulary = config.get_text_config().vocab_size
    kind = AutoModelForCausalLM._model_mapping[type(config)]
    accepted = inspect.signature(kind.forward).parameters
    cache = next((name for name in CACHE_NAMES if name in accepted), None)
    filling = {name: value for name, value in FILLING.items() if name in accepted}
    seen = tokens + 1 if mode == "decode" else tokens
    empty = asked_cache(name, kind, config, options, seen) if mode in GENERATING else None
    if mode in GENERATING and cache is None:
        raise InvalidValue(f"{name} keeps no cache that rooflens knows, so it has no mode {mode!r}")

    def build() -> torch.nn.Module:
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)  # type: ignore[no-any-return]

    def ids(batch: int, begin: int, end: int) -> dict[str, Any]:
        """Return random tokens at positions `begin` to `end`, so that no model computes positions from values."""
        positions = torch.arange(begin, end).expand(batch, end - begin)
        placed = {"position_ids": positions} if "position_ids" in accepted else {}
        return {"input_ids": torch.randint(0, vocabulary, positions.shape), **placed}

    def example(batch: int | None) -> Example:
        n = 1 if batch is None else batch
        if mode == "prefill":
            return Example(kwargs=ids(n, 0, tokens) | filling, cache=cache, empty_cache=empty, seen=seen)
        if mode == "decode":
            # The last token comes by a step of its own, as in every later step: what prefill leaves behind is gone.
            prompt = tuple(ids(n, *part) | filling for part in ((0, tokens - 1), (tokens - 1, tokens)) if part[1])
            step = ids(n, tokens, tokens + 1) | filling
            return Example(kwargs=step, prompt=prompt, cache=cache, empty_cache=empty, seen=seen)
        keeps = cache if config.use_cache and mode == "inference" else None
        return Example(kwargs=ids(n, 0, tokens), targets=torch.randint(0, vocabulary, (n, tokens)), cache=keeps)

    return Blueprint(name=name, build=build, example=example, loss=cross_entropy, tokens=tokens)
