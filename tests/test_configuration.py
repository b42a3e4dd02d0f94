"""Configuration files of language models that cannot be used: each is refused with one sentence, and soon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooflens.errors import ModelError, UnknownModel
from rooflens.models.configuration import configuration

SMALL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100,
}  # fmt: skip


def written(folder: Path, **fields: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(SMALL | fields))
    return str(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads is 0; it has to be a whole number of at least 1"),
        ({"num_key_value_heads": -2}, "num_key_value_heads is -2; it has to be a whole number of at least 1"),
        ({"vocab_size": 0}, "vocab_size is 0; it has to be a whole number of at least 1"),
        ({"torch_dtype": "x;y"}, "transformers refuses the configuration .*: AttributeError: .*'x;y'"),
        ({"num_hidden_layers": "2"}, "transformers refuses .*'num_hidden_layers'.* expected int, got str"),
        ({"hidden_size": [64]}, "transformers refuses .*'hidden_size'.* expected int, got list"),
        ({"rope_scaling": "yes"}, "transformers refuses .*'rope_parameters'"),
        ({"vocab_size": None}, "transformers refuses .*'vocab_size'.* expected int, got NoneType"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; at most 4096 are built"),
        ({"num_hidden_layers": 1e9}, "num_hidden_layers is 1000000000.0; at most 4096 are built"),
        ({"model_type": "mixtral", "num_local_experts": 10**7}, "num_local_experts is 10000000; at most 4096"),
        ({"model_type": "gemma3", "text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers is 1000000000"),
        ({"model_type": ["llama"]}, "needs a JSON object with model_type"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        configuration("hf:" + written(tmp_path, **fields))
    assert "\n" not in str(caught.value)


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    name = written(tmp_path)
    Path(name).write_text(Path(name).read_text().replace('"vocab_size"', '"hidden_size": 32, "vocab_size"'))
    with pytest.raises(ModelError, match="key 'hidden_size' stands twice in one object"):
        configuration(name)


def test_a_file_that_is_nested_too_deeply(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "x": ' + 100_000 * "[" + 100_000 * "]" + "}")
    with pytest.raises(ModelError, match="it has more than 64 levels"):
        configuration(f"hf:{path}")


def test_a_good_file_and_an_unknown_family(tmp_path: Path) -> None:
    assert configuration("hf:" + written(tmp_path))[1].num_hidden_layers == 2
    with pytest.raises(UnknownModel, match=r"did you mean .*llama"):
        configuration("hf:lama")
