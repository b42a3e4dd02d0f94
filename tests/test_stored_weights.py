"""Models that are published with quantised weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.models.load import find
from rooflens.models.stored_weights import stored_weights
from rooflens.records import Record, Timing

LINEAR = {"targets": ["Linear"], "input_activations": None}
GROUPS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
CHANNEL = {"num_bits": 8, "type": "int", "strategy": "channel"}
FP8 = {"num_bits": 8, "type": "float", "strategy": "tensor"}
TINY = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
TINY |= {"intermediate_size": 256, "vocab_size": 120, "max_position_embeddings": 4096, "tie_word_embeddings": False}
LAYER = 2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128
HEAD = 120 * 128
FP8_BY_NAME = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64}


@pytest.fixture
def decoded(tmp_path: Path) -> Callable[..., rl.RecordSet]:
    """Estimates a step of decode of a small model with a ``quantization_config``."""

    def step(stored: object, family: str = "llama", mode: str = "decode", **options: Any) -> rl.RecordSet:
        sizes = {name: options.pop(name) for name in tuple(options) if name.startswith("num_")}
        config = {"model_type": family, **TINY, **sizes, "quantization_config": stored}
        (tmp_path / "config.json").write_text(json.dumps(config))
        options = {"dtype": "bf16"} | options
        return rl.estimate(f"hf:{tmp_path}/config.json", seq_len=20, mode=mode, **options)

    return step


def _model(found: rl.RecordSet) -> Record:
    return next(record for record in found.records if record.scope == "model")


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (GPTQ, {"weights": "int4", "weights_group_size": 64, "weights_except": "lm_head"}),
        (GPTQ | {"group_size": 128, "lm_head": True}, {"weights": "int4"}),
        (GPTQ | {"bits": 8, "group_size": -1}, {"weights": "int8", "weights_except": "lm_head"}),
        (GPTQ | {"bits": 3}, {}),
        (GPTQ | {"group_size": -1}, {}),  # no scale for an output channel beside codes of 4 bits
        (GPTQ | {"dynamic": {"-:.*down.*": {}}}, {}),  # other bits in some layers
        (
            {"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "modules_to_not_convert": ["gate"]},
            {"weights": "int4", "weights_except": "gate,lm_head"},
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, {"weights": "nf4", "weights_except": "lm_head"}),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            {"weights": "nf4-double", "weights_except": "lm_head"},
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["score"]},
            {"weights": "int8", "weights_except": "score"},
        ),
        (
            # Every layer has a gate that stays, one of both has more.
            {"quant_method": "fp8", "modules_to_not_convert": ["m.0.gate", "m.1.gate", "m.1.mlp", "lm_head"]},
            {"weights": "fp8", "weights_except": "m.*.gate,m.1.mlp,lm_head"},
        ),
        ({"quant_method": "fbgemm_fp8"}, {"weights": "fp8", "weights_except": "lm_head"}),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": LINEAR | {"weights": GROUPS}},
                # A pattern without an end is one of all names that begin so: of gate_proj too.
                "ignore": ["lm_head", r"re:.*\.mlp\.gate$", "re:.*mlp.gate", "re:^visual.*"],
            },
            {
                "weights": "int4",
                "weights_group_size": 32,
                "weights_except": "lm_head,*.mlp.gate,*mlp.gate*,visual*",
            },
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": LINEAR | {"weights": CHANNEL}}},
            {"weights": "int8"},
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": LINEAR | {"weights": FP8, "input_activations": FP8}},
            },
            {"weights": "fp8"},
        ),
        (  # products on int8
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": LINEAR | {"weights": CHANNEL, "input_activations": CHANNEL}},
            },
            {},
        ),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["a,b"]}, {}),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["re:(a|b)"]}, {}),
        ({"quant_method": "mxfp4", "modules_to_not_convert": "lm_head"}, {}),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["a"] * 2001}, {}),
        ({"quant_method": ["a\x1b[2J"]}, {}),
        ("int4", {}),
    ],
)
def test_what_a_configuration_says_is_what_a_user_would_type(given: object, options: dict[str, Any]) -> None:
    stored = stored_weights(given, 2)
    assert stored is not None
    assert stored.options == options
    assert stored.method.isprintable()


def test_which_parts_of_a_model_with_more_than_words_gptq_stores_so_is_not_known() -> None:
    stored = stored_weights(GPTQ, 2, has_more=True)
    assert stored is not None
    assert not stored.options


def test_names_that_no_module_has_are_told_briefly(decoded: Callable[..., rl.RecordSet]) -> None:
    names = ["lm_head", *(f"model.layers.{n}.gate" for n in range(2, 9))]
    found = decoded({"quant_method": "mxfp4", "modules_to_not_convert": names})
    shown = ", ".join(names[1:4])
    assert f"weights_except: no module is called {shown} and 4 more names" in _model(found).notes


def test_titles_have_the_first_names_of_a_long_list_and_files_all(decoded: Callable[..., rl.RecordSet]) -> None:
    names = ["lm_head", "model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj", "model.layers.1.self_attn.q_proj"]
    found = decoded(GPTQ | {"quant_method": "awq", "modules_to_not_convert": names})
    title, *_ = " ".join(rl.table(found).split()).split(" in all rows")
    assert "weights_except=lm_head,model.layers.0.mlp.up_proj,+2" in title
    assert ",".join(names) in rl.table(found, format="json")
    (case,) = found.cases
    assert ",+2" in case.label()


def test_an_estimate_follows_the_configuration(decoded: Callable[..., rl.RecordSet]) -> None:
    found = decoded(GPTQ)
    assert dict(found.cases[0].options) == {
        "seq_len": 20,
        "weights": "int4",
        "weights_group_size": 64,
        "weights_except": "lm_head",
    }
    notes = _model(found).notes
    assert any(f"of {2 * LAYER + 2 * HEAD + 640:,} parameters {2 * LAYER:,}, which" in note for note in notes)
    assert any("weights in gptq (quantization_config), and so they are counted" in note for note in notes)
    as_typed = decoded(None, weights="int4", weights_group_size=64, weights_except="lm_head")
    assert found.total().work == as_typed.total().work
    assert found.memory == as_typed.memory


@pytest.mark.parametrize(
    ("stored", "options", "weights", "note"),
    [
        (GPTQ, {"weights": "int8"}, "int8", ""),  # whoever names a format has it
        (GPTQ, {"weights": "none"}, None, ""),
        (GPTQ, {"mode": "train"}, None, "an estimate with weights='int4', weights_group_size=64, weights_except='lm"),
        (GPTQ, {"dtype": "amp-bf16"}, None, "and here they are in the dtype, in which rooflens runs it"),
        ({"quant_method": "fp8"}, {"device": "a100-sxm4-40gb"}, None, "where a device has a rate for products on fp8"),
        ({"quant_method": "quip"}, {}, None, "in quip (quantization_config), in a form that rooflens does not know"),
    ],
)
def test_where_it_is_not_followed_a_note_says_so(
    decoded: Callable[..., rl.RecordSet], stored: object, options: dict[str, Any], weights: str | None, note: str
) -> None:
    found = decoded(stored, **options)
    assert dict(found.cases[0].options).get("weights") == weights
    told = [one for one in _model(found).notes if "quantization_config" in one]
    assert len(told) == bool(note)
    assert all(note in one for one in told)


def test_each_card_has_the_format_that_it_multiplies_whatever_stands_beside_it(tmp_path: Path) -> None:
    config = {"model_type": "llama", **TINY, "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(config))

    def works(*devices: str) -> dict[str | None, tuple[object, float]]:
        ranked = rl.rank(f"hf:{tmp_path}/config.json", device=devices, seq_len=20, mode="decode", dtype="bf16")
        assert "the configuration stores weights in fp8 (quantization_config)" in str(rl.table(ranked))
        steps = ((row.evidence.case, row.total) for row in ranked.rows)
        return {
            case.device: (dict(case.options).get("weights"), total.bytes["dram"])
            for case, total in steps
            if total is not None
        }

    together = works("a100-sxm4-40gb", "l4")
    assert together == works("a100-sxm4-40gb") | works("l4")
    assert {device: weights for device, (weights, _) in together.items()} == {"a100-sxm4-40gb": None, "l4": "fp8"}


def test_a_note_names_a_format_once_for_all_cards_that_have_it(decoded: Callable[..., rl.RecordSet]) -> None:
    text = str(rl.table(decoded({"quant_method": "fp8"}, device=["a100-sxm4-40gb", "l4", "h200"]), width=300))
    assert "\nweights=fp8 weights_except=lm_head: the configuration stores weights in fp8" in text
    assert "\nno option weights: the configuration stores weights in fp8" in text


def test_what_is_said_of_weights_alone_is_about_those_of_the_configuration(
    decoded: Callable[..., rl.RecordSet],
) -> None:
    found = decoded(GPTQ, weights_except="model.layers.0", weights_group_size=32)
    assert dict(found.cases[0].options) == {
        "seq_len": 20,
        "weights": "int4",
        "weights_group_size": 32,
        "weights_except": "lm_head,model.layers.0",
    }
    told = _model(decoded(GPTQ, weights_except="model.layers.0")).notes
    assert any("and so they are counted, but for model.layers.0; weights='none'" in note for note in told)
    assert any(f"parameters {LAYER:,}, which products alone read" in note for note in told)
    fp8 = {"quant_method": "fp8"}
    assert dict(decoded(fp8, device="a100-sxm4-40gb", weights_except="lm_head").cases[0].options) == {"seq_len": 20}
    for stored in (None, {"quant_method": "quip"}):
        with pytest.raises(InvalidValue, match="no weights are given another one; give weights too"):
            decoded(stored, weights_except="lm_head")


def test_a_module_that_does_not_fall_into_groups_is_named(decoded: Callable[..., rl.RecordSet]) -> None:
    with pytest.raises(InvalidValue, match=r"or weights_except='model\.layers\.0\.self_attn\.q_proj' leaves it"):
        decoded(GPTQ | {"group_size": 256})


def test_experts_without_linear_layers_are_stored_so_too(decoded: Callable[..., rl.RecordSet]) -> None:
    stored = find("gpt-oss-20b", mode="decode").stored
    assert stored is not None
    kept = "model.layers.*.self_attn,model.layers.*.mlp.router,model.embed_tokens,lm_head"
    assert stored.options == {"weights": "mxfp4", "weights_except": kept}

    published = {"quant_method": "mxfp4", "modules_to_not_convert": kept.split(",")}
    found = decoded(published, "gpt_oss", num_local_experts=4, num_experts_per_tok=2)
    experts = 2 * 4 * (128 * 512 + 256 * 128)
    assert any(f"parameters {experts:,}, which products alone read" in note for note in _model(found).notes)
    first = next(record for record in found.records if record.path.endswith("mlp.experts") and record.kind == "matmul")
    assert first.traffic is not None
    # One token meets two experts, each with 128 x 512 weights in 4 bits, and a byte for each 32.
    assert first.traffic.weights == 2 * (128 * 512 // 2 + 128 * 512 // 32)


def test_a_search_for_the_longest_context_follows_it_too(tmp_path: Path) -> None:
    config = {"model_type": "llama", **TINY, "max_position_embeddings": 8, "quantization_config": GPTQ}
    (tmp_path / "config.json").write_text(json.dumps(config))
    fits = rl.longest_context(f"hf:{tmp_path}/config.json", device="t4", dtype="fp16")
    assert fits.context == 7
    assert dict(fits.records.cases[0].options)["weights"] == "int4"


@pytest.mark.parametrize(("sources", "weights"), [('["estimate"]', "int4"), ('["estimate", "measure"]', None)])
def test_a_study_counts_weights_as_published_unless_something_runs_in_it(
    tmp_path: Path, sources: str, weights: str | None
) -> None:
    config = {"model_type": "llama", **TINY, "quantization_config": GPTQ}
    (tmp_path / "config.json").write_text(json.dumps(config))
    grid = f'title = "T"\nmodels = ["hf:config.json"]\ndtypes = ["bf16"]\nmodes = ["decode"]\nsources = {sources}\n'
    (tmp_path / "study.toml").write_text(f'{grid}seq_lens = [20]\ndevices = ["l4"]\n')
    rl.run_study(tmp_path / "study.toml", tmp_path / "out", jobs=0)  # nothing is measured: no such card is here
    found = rl.study_records(tmp_path / "out")
    assert dict(found.cases[0].options).get("weights") == weights
    first = next(record for record in found if record.path.endswith("0.self_attn.q_proj"))
    assert first.traffic is not None
    assert first.traffic.weights == (128 * 128 // 2 + 128 * 128 // 64 * 4 if weights else 128 * 128 * 2)


def test_advice_on_what_was_measured_is_about_weights_that_ran(
    decoded: Callable[..., rl.RecordSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate = decoded(GPTQ, device="h100-sxm", weights="none")
    timing = Timing(samples=(3e-3,), origin="cuda-events")
    measured = Record(case=estimate.cases[0], source="measure", scope="model", timing=timing)
    path = (estimate + rl.RecordSet([measured], devices=estimate.devices)).save(tmp_path / "measured.jsonl")
    monkeypatch.chdir(tmp_path)  # records name files without their folder
    (found,) = rl.advise(path)
    total = found.base.evidence.total()
    assert total is not None
    assert total.seconds == estimate.total().seconds
    assert "weights" not in dict(found.case.options)


def test_a_search_on_several_cards_has_the_weights_that_each_multiplies(tmp_path: Path) -> None:
    config = {"model_type": "llama", **TINY, "max_position_embeddings": 8, "quantization_config": FP8_BY_NAME}
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked: dict[str, Any] = {"mode": "decode", "seq_len": 4, "dtype": "fp16"}
    cards = ["l4", "t4", "h100-sxm"]  # a T4 multiplies no fp8
    fits = rl.largest_batch(f"hf:{tmp_path}/config.json", device=cards, **asked)
    assert [dict(fit.case.options).get("weights") for fit in fits] == ["fp8", None, "fp8"]
    alone = [rl.largest_batch(f"hf:{tmp_path}/config.json", device=card, **asked).batch for card in cards[1:]]
    assert [fit.batch for fit in fits][1:] == alone
    assert len(fits.records.cases) == 3
