"""Decoder-only language models of transformers from their configuration: ``hf:llama``, ``hf:path/config.json``.

Weights are never read, remote code is never trusted, and nothing is fetched.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.errors import MissingDependency, ModelError, UnknownModel
from rooflens.models.blueprint import Blueprint, Example, InputOptions
from rooflens.models.step import cross_entropy

if TYPE_CHECKING:
    import torch

PREFIX = "hf:"
DEFAULT_TOKENS = 512


def blueprint(name: str, options: InputOptions) -> Blueprint:
    """The blueprint of a causal language model: token ids in, logits of every position out.

    Raises:
        MissingDependency: transformers is not installed.
        UnknownModel: no such family with a causal language model, and no such file.
        ModelError: the configuration file cannot be used.
    """
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise MissingDependency("building a transformers model", "transformers", "llm") from error
    import torch

    config = _config(name.removeprefix(PREFIX))
    config.use_cache = False
    tokens = options.seq_len or min(DEFAULT_TOKENS, getattr(config, "max_position_embeddings", None) or DEFAULT_TOKENS)
    vocabulary = config.get_text_config().vocab_size

    def build() -> torch.nn.Module:
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)  # type: ignore[no-any-return]

    def example(batch: int | None) -> Example:
        n = 1 if batch is None else batch
        ids = torch.randint(0, vocabulary, (n, tokens))
        positions = torch.arange(tokens).expand(n, tokens)
        return Example(
            kwargs={"input_ids": ids, "position_ids": positions}, targets=torch.randint(0, vocabulary, (n, tokens))
        )

    return Blueprint(name=name, build=build, example=example, loss=cross_entropy)


def _config(source: str) -> Any:
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as FAMILIES

    if not source.endswith(".json"):
        if source not in FAMILIES:
            raise UnknownModel(
                "transformers family", source, FAMILIES, "(name a family of causal language models, or a config.json)"
            )
        return AutoConfig.for_model(source)
    try:
        fields = dict(json.loads(Path(source).read_text()))
        family = fields.pop("model_type")
    except OSError as error:
        raise ModelError(f"cannot read {source!r}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(
            f"{source!r} is no transformers configuration: it needs a JSON object with model_type"
        ) from error
    if family not in FAMILIES:
        raise UnknownModel("transformers family", family, FAMILIES, f"in {source}")
    return AutoConfig.for_model(family, **fields)
