"""From names, files and modules to steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import torchvision_models
from torch import nn

from rooflens.errors import InvalidValue, ModelError, UnknownModel
from rooflens.models import Step, build, find, make_example, make_optimizer, make_step, split_inputs, workload
from rooflens.runs.options import Options
from rooflens.runs.run import Request
from rooflens.trace import trace


@pytest.mark.parametrize(
    "name",
    ["alexnet", "googlenet", "mobilenet_v3_small", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_v2_t"],
)
def test_models_of_torchvision_count_in_full(name: str) -> None:
    assert list(torchvision_models.differences(name)) == []


@pytest.mark.parametrize(
    ("name", "size"),
    [("resnet18", 224), ("inception_v3", 299), ("efficientnet_b7", 600), ("vit_h_14", 224), ("swin_v2_t", 256)],
)
def test_images_have_the_size_of_the_models_first_weights(name: str, size: int) -> None:
    assert make_example(find(name), 3, "meta").args[0].shape == (3, 3, size, size)


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "maxvit_t", "timm:vit_tiny_patch16_224", "timm:resnet18"])
def test_image_size_can_be_chosen(name: str) -> None:
    size = 448 if name == "maxvit_t" else 192
    blueprint = find(name, Options(img_size=size))
    example = make_example(blueprint, 1, "meta")
    assert example.args[0].shape[-1] == size
    step = make_step(name, build(blueprint, "meta"), example, dtype="fp32", mode="inference", loss=blueprint.loss)
    assert trace(step).operations


def test_building_on_meta_allocates_nothing() -> None:
    assert all(p.is_meta for p in build(find("vgg16"), "meta").parameters())


def test_segmentation_models_take_images_too() -> None:
    blueprint = find("fcn_resnet50", Options(img_size=64))
    step = make_step(
        "fcn", build(blueprint, "meta"), make_example(blueprint, 2, "meta"), dtype="fp32", mode="train",
        loss=blueprint.loss,
    )  # fmt: skip
    assert trace(step).operations


def test_models_of_other_tasks_say_what_to_do() -> None:
    with pytest.raises(InvalidValue, match=r"no plain images.*path/file\.py:function"):
        find("fasterrcnn_resnet50_fpn")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet19", "unknown model 'resnet19'; did you mean .*resnet18"),
        ("timm:convnext_tinny", "did you mean .*convnext_tiny"),
        ("hf:lama", "did you mean .*llama"),
        ("hf:no/such/config.json", "cannot read"),
        ("no_such.py:build", "there is no such file"),
        ("folder/model", "path/file.py:function"),
    ],
)
def test_unknown_models_are_errors_that_name_near_ones(name: str, message: str) -> None:
    with pytest.raises((UnknownModel, ModelError), match=message):
        find(name)


def test_a_language_model_from_a_configuration_file(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    blueprint = find(f"hf:{path}", Options(seq_len=16))
    module = build(blueprint, "meta")
    # Embedding and head 2 * 100 * 64. Per layer: q and o 64 * 64, k and v 64 * 32, MLP 3 * 64 * 128, two norms of 64.
    assert sum(p.numel() for p in module.parameters()) == 2 * 6400 + 2 * (2 * 4096 + 2 * 2048 + 24576 + 128) + 64
    example = make_example(blueprint, 3, "meta")
    assert example.kwargs is not None
    assert example.kwargs["input_ids"].shape == (3, 16)


@pytest.mark.parametrize("text", ["[]", "{}", "not json"])
def test_a_broken_configuration_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ModelError, match="no transformers configuration"):
        find(f"hf:{path}")


def user_file(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    path.write_text(f"import torch\nfrom torch import nn\n{body}\n")
    return f"{path}:build"


def step_of(name: str, **more: Any) -> Step:
    """The step of a user's file, called in this process as often as it takes."""
    asked = workload(Request(model=name, **more))
    return asked.untouched_steps()(asked.runs[0])


@pytest.mark.parametrize(
    "returned",
    [
        "nn.Linear(4, 2), torch.randn(batch, 4)",
        "nn.Linear(4, 2), (torch.randn(batch, 4),)",
        "nn.Linear(4, 2), {'input': torch.randn(batch, 4)}",
        "nn.Linear(4, 2), (torch.randn(batch, 4),), {}",
        "nn.Linear(4, 2), ((torch.randn(batch, 4),), {})",
    ],
)
def test_a_users_function_returns_a_model_and_its_inputs(tmp_path: Path, returned: str) -> None:
    step = step_of(user_file(tmp_path, f"def build(batch):\n    return {returned}"), batch=5, mode="train")
    (product,) = [o for o in trace(step).operations if o.call.name == "addmm"]
    assert product.call.outputs[0].shape == (5, 2)


def test_a_function_without_batch_decides_its_own(tmp_path: Path) -> None:
    name = user_file(tmp_path, "def build():\n    return nn.Linear(4, 2), torch.randn(3, 4)")
    assert step_of(name).args[0].shape == (3, 4)
    with pytest.raises(InvalidValue, match="decides its own batch"):
        step_of(name, batch=8)


def test_a_users_file_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("WIDTH = 7\n")
    name = user_file(
        tmp_path,
        "from neighbour_of_mine import WIDTH\ndef build():\n    return nn.Linear(WIDTH, 1), torch.randn(1, WIDTH)",
    )
    assert step_of(name).module.in_features == 7


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise RuntimeError('broken at import')", "mine.py raised RuntimeError: broken at import .*line 3"),
        ("def build():\n    return 1 / 0", "raised ZeroDivisionError.*line 4"),
        ("def build():\n    return nn.Linear(1, 1)", r"has to return \(module, inputs\)"),
        ("def other(): pass", "unknown function .*it has other"),
        ("def build(:", "mine.py is no valid Python: .*line 3"),
    ],
)
def test_a_users_file_that_fails_is_named_with_its_line(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises((ModelError, UnknownModel), match=message):
        step_of(user_file(tmp_path, body))


def test_a_users_function_may_read_values_and_has_its_own_default_batch(tmp_path: Path) -> None:
    body = "def build(batch=3):\n    n = int(torch.linspace(1, 4, 4)[2].item())\n"
    body += "    torch.set_default_dtype(torch.float64)\n    return nn.Linear(4, n), torch.randn(batch, 4)"
    name = user_file(tmp_path, body)
    assert find(name).default_batch == 3
    # Values cannot be read on meta, so the CPU has to help; the switch that the function turns is put back.
    step = step_of(name, batch=5)
    assert step.module.out_features == 3
    assert step.args[0].shape == (5, 4)
    assert torch.get_default_dtype() == torch.float32


def test_a_model_that_reads_values_is_built_without_weights(tmp_path: Path) -> None:
    # 64 layers of 1 GiB each, which no machine of ours holds; only the ten rates of stochastic depth have values.
    body = """def build():
    rates = [rate.item() for rate in torch.linspace(0, 0.1, 10)]
    module = nn.Sequential(*(nn.Linear(16384, 16384, bias=False) for _ in range(64)), nn.Dropout(rates[-1]))
    module[1].weight = module[0].weight
    module[2].weight.requires_grad_(False)
    weight = nn.Parameter(torch.ones(3))
    weight.group = "slow"
    module.first, module.second = nn.Module(), nn.Module()
    module.first.weight = module.second.weight = weight
    module.register_buffer("rates", torch.tensor(rates))
    return module, torch.randn(1, 16384)
"""
    module = step_of(user_file(tmp_path, body)).module
    assert all(parameter.is_meta for parameter in module.parameters())
    assert not module.rates.is_meta
    assert sum(p.numel() for p in module.parameters()) == 63 * 16384**2 + 3  # two layers share theirs
    first, second = (module.get_parameter(f"{name}.weight") for name in ("first", "second"))
    assert first is second
    assert first.group == "slow"  # type: ignore[attr-defined]
    assert [p.requires_grad for p in module.parameters()].count(False) == 1
    assert not nn.Linear(1, 1).weight.is_meta  # what was changed in torch is put back


def test_a_model_that_reads_its_parameters_is_built_with_them(tmp_path: Path) -> None:
    body = "def build():\n    inner = nn.Linear(4, 4)\n    n = 1 + int(inner.weight.abs().sum() > 0)\n"
    body += "    return nn.Linear(4, n), torch.randn(1, 4)"
    assert step_of(user_file(tmp_path, body)).module.out_features == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def build():\n    raise SystemExit(7)", r"ends the program \(exit code 7\)"),
        ("def build(width):\n    pass", "needs width"),
    ],
)
def test_a_function_that_cannot_be_called_is_an_error(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        step_of(user_file(tmp_path, body))


def test_inputs_that_are_too_large_are_an_error() -> None:
    with pytest.raises(ModelError, match="cannot make inputs of alexnet for batch"):
        make_example(find("alexnet"), 10**18, "meta")


@pytest.mark.parametrize(
    ("batch", "options", "mode"),
    [
        (10**12, Options(seq_len=8), "inference"),
        (1, Options(seq_len=10**13), "prefill"),
        (10**10, Options(seq_len=800), "decode"),
    ],
)
def test_more_tokens_than_can_be_written_down_are_told(batch: int, options: Options, mode: str) -> None:
    tokens = options.seq_len
    with pytest.raises(ModelError, match=rf"batch {batch} of {tokens} tokens each: their ids take \d.* free; choose"):
        make_example(find("hf:gpt2", options, mode), batch, "meta")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("alexnet", Options(seq_len=8)),
        ("hf:gpt2", Options(img_size=8)),
        ("timm:resnet18", Options(seq_len=8)),
    ],
)
def test_options_that_would_change_nothing_are_errors(name: str, options: Options) -> None:
    with pytest.raises(InvalidValue, match="has no meaning"):
        find(name, options)


def test_unknown_words_list_what_is_known() -> None:
    with pytest.raises(InvalidValue, match="unknown optimizer 'sgdm'; known: none, sgd, adam, adamw"):
        make_optimizer("sgdm", [])


def test_inputs_in_every_form() -> None:
    x = torch.zeros(1)
    assert split_inputs(x) == ((x,), {})
    assert split_inputs((x, x)) == ((x, x), {})
    assert split_inputs({"a": x}) == ((), {"a": x})
    assert split_inputs(((x,), {"a": x})) == ((x,), {"a": x})
    assert split_inputs([x]) == ((x,), {})
