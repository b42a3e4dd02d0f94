"""Whole answers: prefill, and a step of decode for each further token, whose cache grows."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import rooflens as rl
from rooflens.api import counting
from rooflens.cli.main import cli
from rooflens.devices import find
from rooflens.errors import RooflensError
from rooflens.models import Example, Executable, Step, eager, make_step, sum_of_outputs, workload
from rooflens.models.kv_caches import is_fixed
from rooflens.records import CachePart, Case, KvCache, Phase, Record, Trace
from rooflens.report.case_json import promised_json
from rooflens.running import whole_answers
from rooflens.running.estimating import estimable
from rooflens.running.tracing import tracer
from rooflens.running.whole_answers import counted_run, ends_of
from rooflens.runs.options import Options
from rooflens.runs.run import Request, Run
from rooflens.trace import trace

transformers = pytest.importorskip("transformers")

LAYERS, HEADS, WIDTH, BF16, BATCH = 1, 2, 16, 2, 2
"""Of keys and values."""
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": HEADS,
    "head_dim": WIDTH,
    "intermediate_size": 64,
    "vocab_size": 120,
    "max_position_embeddings": 4096,
}
H100 = "h100-sxm"
PHASES: tuple[Phase, ...] = ("prefill", "decode")
ALTERNATING = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 2,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"],
}
T5 = {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 4, "vocab_size": 120}


def saved(folder: Path, config: dict[str, Any]) -> str:
    path = folder / f"{config['model_type']}.json"
    path.write_text(json.dumps(config))
    return f"hf:{path}"


def answer_and_steps(model: str, first: int, **asked: Any) -> tuple[rl.RecordSet, list[rl.RecordSet]]:
    """A whole answer, and each of its steps of decode by itself, from one trace of each."""
    one = estimable(Request.of({"model": model, "mode": "inference", "batch": BATCH, "dtype": "bf16", **asked}))
    (run,), trace, device = one.runs, cache(tracer(one)), find(H100)
    count = asked["output_len"] - 1
    steps = [run.step_of_answer("decode", first + n, room=first + count) for n in range(count)]
    whole, *each = (
        rl.RecordSet(counted_run(each, trace, [device], one.tokens)(device), devices={device.name: device})
        for each in (run, *steps)
    )
    return whole, each


def summed(*sets: rl.RecordSet, phase: Any = None) -> list[float]:
    """FLOP, bytes, bound, the time as written and the number of operations."""
    totals = [records.total(phase) for records in sets]
    seconds = [(t.seconds or 0, t.written_bound.seconds if t.written_bound else 0) for t in totals]
    return [
        sum(t.flops or 0 for t in totals),
        sum(t.bytes["dram"] for t in totals),
        sum(bound for bound, _ in seconds),
        sum(written for _, written in seconds),
        sum(t.coverage.operations for t in totals),
    ]


@pytest.mark.parametrize(
    ("config", "options", "first", "count", "traced"),
    [
        ({}, {"kv_dtype": "int8"}, 9, 6, 2),
        ({"model_type": "mistral", "sliding_window": 11}, {}, 9, 11, 7),  # full on the way
        ({"model_type": "mistral", "sliding_window": 11}, {"kv_cache": "static"}, 9, 11, 7),
        (T5, {}, 1, 6, 2),  # the encoder reads the prompt, the decoder begins with one token
    ],
)
def test_the_sum_is_that_of_all_steps_traced_one_by_one(
    tmp_path: Path, config: dict[str, Any], options: dict[str, Any], first: int, count: int, traced: int
) -> None:
    model = saved(tmp_path, config if config is T5 else LLAMA | config)
    found, steps = answer_and_steps(model, first, prompt_len=9, output_len=count + 1, **options)
    assert summed(found, phase="decode") == pytest.approx(summed(*steps), rel=1e-9)
    assert len({record.tokens for record in found if record.tokens is not None}) <= traced  # they stand for all
    (case,) = promised_json(found)
    assert case["answers"]["time_per_output_token"] == pytest.approx(summed(*steps)[2] / count)
    assert case["answers"]["time_of_last_token"] == pytest.approx(summed(steps[-1])[2])
    totals = (found.total("decode"), *(step.total() for step in steps))
    expected, *each = (total.prediction for total in totals)
    assert expected is not None
    assert expected.device == pytest.approx(sum(one.device for one in each if one is not None), rel=0.01)
    assert found.kv_cache == steps[-1].kv_cache


RATES = (4, 8)
"""Tokens for which an entry of a cache stands."""


class Reading(torch.nn.Module):
    """Reads a part of a cache, and completes an entry if one is due."""

    def forward(self, query: torch.Tensor, part: torch.Tensor, due: bool) -> torch.Tensor:
        found = (query @ part).sum() if part.shape[1] else query.sum()
        return found + part.softmax(1).sum() if due else found


class Compressing(torch.nn.Module):
    """A step that reads entries and what waits for the next ones."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(Reading() for _ in range(5))

    def forward(self, query: torch.Tensor, kept: list[torch.Tensor], due: list[bool]) -> torch.Tensor:
        return torch.stack([part(query, *one) for part, *one in zip(self.parts, kept, due, strict=True)])


def compressing(run: Run) -> Trace:
    tokens = run.options.seq_len or 0
    entries = [min((tokens + 1) // RATES[0], 16), *((tokens + 1) // rate for rate in RATES)]  # some see 16 at most
    kept = [torch.zeros(8, n) for n in (*entries, *(tokens % rate for rate in RATES))]
    complete = [False, *((tokens + 1) % rate == 0 for rate in RATES), False, False]
    example = Example(args=(torch.zeros(1, 8), kept, complete))
    step = make_step("compressing", Compressing(), example, dtype="as-is", mode="inference", loss=sum_of_outputs)
    part = CachePart(name="compressed", shape=(1, 1), dtype="fp32", tensors=1, held=4, used=4, per_token=1)
    parts = tuple(replace(part, compression=rate) for rate in RATES)
    return replace(trace(step), kv_cache=KvCache(batch=1, tokens=tokens + 1, parts=parts))


def test_a_cache_that_takes_in_entries_for_several_tokens_is_summed_by_kinds_of_steps() -> None:
    asked, device, traced = Options(prompt_len=35, output_len=111), find(H100), cache(compressing)
    run = Run(model="compressing", batch=1, mode="generate", options=asked)
    steps = [run.step_of_answer("decode", 35 + n, room=145) for n in range(110)]
    whole, *each = (
        rl.RecordSet(counted_run(one, traced, [device], 35)(device), devices={device.name: device})
        for one in (run, *steps)
    )
    assert summed(whole, phase="decode") == pytest.approx(summed(*each), rel=1e-12)
    assert not any("along no line" in note for note in whole.notes)
    assert len({record.tokens for record in whole}) < 65
    peaks = [one.memory.peak or 0 for one in (whole, *each) if one.memory is not None]
    assert peaks[0] == max(peaks)
    assert len(peaks) == 111
    ends = [traced(one).memory for one in ends_of(run, 35, traced)[1:]]  # by which the largest batch is searched
    assert max(one.peak or 0 for one in ends if one is not None) == max(peaks)


def test_steps_that_lie_on_no_line_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(tmp_path, LLAMA | {"model_type": "mistral", "sliding_window": 11})
    monkeypatch.setattr(whole_answers, "MOST", 4)
    found, steps = answer_and_steps(model, 9, prompt_len=9, output_len=12)
    assert summed(found, phase="decode")[:4] == pytest.approx(summed(*steps)[:4], rel=0.01)
    assert sum(1 for tokens in {r.tokens for r in found} if tokens is not None) < 7  # as many as are traced for a line
    (note,) = [note for note in found.notes if "grows along no line" in note]
    assert float(note.partition("up to ")[2].partition(" %")[0]) < 1


def test_what_grows_is_a_token_of_the_cache(tmp_path: Path) -> None:
    found, (first, *_) = answer_and_steps(saved(tmp_path, LLAMA), 9, prompt_len=9, output_len=9)
    token = 2 * LAYERS * BATCH * HEADS * WIDTH * BF16  # a key and a value in each layer

    def needed(records: rl.RecordSet) -> float:
        return sum(r.bound_work.bytes["dram"] * r.calls for r in records if r.bound_work and r.phase != "prefill")

    # Caches of 9 to 16 tokens are read: 8 steps, the first with 9, and all with 0 + 1 + ... + 7 tokens more.
    assert needed(found) == 8 * needed(first) + 28 * token
    assert {record.tokens for record in found} == {None, 12, 16}  # seven stand around 12
    assert found.kv_cache is not None
    assert (found.kv_cache.tokens, found.kv_cache.held) == (9 + 9 - 1, 17 * token)


def test_prefill_is_the_step_of_that_name_and_memory_that_of_the_step_that_needs_most(tmp_path: Path) -> None:
    model = saved(tmp_path, LLAMA)
    prefill = rl.estimate(model, batch=BATCH, mode="prefill", seq_len=50, device=H100)
    short = rl.estimate(model, batch=BATCH, prompt_len=50, output_len=3, device=H100)
    assert summed(short, phase="prefill") == summed(prefill)
    assert short.memory == prefill.memory
    long = rl.estimate(model, batch=BATCH, prompt_len=5, output_len=800, device=H100)
    assert long.memory == rl.estimate(model, batch=BATCH, mode="decode", seq_len=803, device=H100).memory
    alone = rl.estimate(model, batch=BATCH, prompt_len=50, output_len=1, device=H100)
    assert alone.phases == ("prefill",)
    (case,) = promised_json(alone)
    assert case["answers"]["time_per_output_token"] is None
    assert case["answers"]["time_to_first_token"] == case["answers"]["time_per_answer"] == prefill.total().seconds


def test_the_first_token_is_there_before_the_next_is_begun(tmp_path: Path) -> None:
    whole = rl.estimate(saved(tmp_path, LLAMA), batch=BATCH, prompt_len=9, output_len=4, device=H100)
    prefill, decode = (whole.total(phase).prediction for phase in ("prefill", "decode"))
    found = whole.total().prediction
    assert prefill is not None
    assert decode is not None
    assert found is not None
    assert found.seconds == pytest.approx(prefill.seconds + decode.seconds)
    assert (found.low, found.high) == pytest.approx((prefill.low + decode.low, prefill.high + decode.high))
    assert found.regime == decode.regime  # three steps of it


def test_of_an_answer_from_graphs_the_prompt_is_read_eagerly(tmp_path: Path) -> None:
    whole = rl.estimate(saved(tmp_path, LLAMA), batch=BATCH, prompt_len=9, output_len=4, device=H100)
    device = find(H100)
    graph = {phase: whole.under(device, phase, "graph").prediction for phase in PHASES}
    assert graph["prefill"] == whole.under(device, "prefill", "eager").prediction
    assert graph["decode"] is not None
    assert graph["decode"].regime == "graph"
    both = whole.under(device, None, "graph").prediction
    assert both is not None
    assert both.seconds == pytest.approx(sum(one.seconds for one in graph.values() if one is not None))


def test_an_answer_beyond_the_positions_of_the_model_is_told(tmp_path: Path) -> None:
    model = saved(tmp_path, LLAMA | {"max_position_embeddings": 12})
    told = "the answer ends at 13 tokens, and the configuration of the model names 12 positions"
    assert told in rl.estimate(model, prompt_len=10, output_len=4).notes
    assert told.replace("13", "12") not in rl.estimate(model, prompt_len=10, output_len=3).notes
    told = told.replace("the answer ends at", "a sequence has")
    assert told in rl.estimate(model, mode="decode", seq_len=12).notes  # and the new one
    assert told in rl.estimate(model, mode="train", seq_len=13, optimizer="none").notes
    assert not any("positions" in note for note in rl.estimate(model, mode="prefill", seq_len=12).notes)


def test_a_prompt_that_does_not_fit_is_told_from_decode_that_does(tmp_path: Path) -> None:
    def told(batch: int) -> list[str]:
        found = rl.estimate(saved(tmp_path, LLAMA), batch=batch, prompt_len=40, output_len=3, device="t4")
        return [note for note in found.notes if "prefill does not fit" in note]

    # With 16 GB: keys and values of 42 tokens take 42 * 2 * 2 * 16 * 4 B = 10.8 kB of a sequence, prefill far more.
    assert told(400_000)[0].startswith("prefill does not fit, and decode does: they need ")
    assert told(100) == told(4_000_000) == []  # both do, neither does


@pytest.mark.parametrize(
    ("release", "told"), [("5.17.0", True), ("5.24.0", False), ("6.0", False), ("5.9.1.dev0", True)]
)
def test_what_a_graph_does_beyond_the_estimate_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, told: bool
) -> None:
    monkeypatch.setattr(import_module("rooflens.models.workload"), "version", lambda _: release)
    asked = Request.of({"model": saved(tmp_path, LLAMA), "mode": "decode", "cuda_graph": True, "seq_len": 9})
    one = workload(asked)
    notes = one.untouched_steps()(one.runs[0]).notes
    assert any(
        "has to be static (--kv-cache static); it keeps the old cache" in note and ("5.17" in note) == told
        for note in notes
    )
    static = workload(replace(asked, options=replace(asked.options, kv_cache="static")))
    assert not any("this graph" in note for note in static.untouched_steps()(static.runs[0]).notes)


def test_answers_in_tokens_energy_and_money(tmp_path: Path) -> None:
    found = rl.estimate(
        saved(tmp_path, LLAMA), batch=BATCH, prompt_len=10, output_len=5, device=H100, price_per_hour=3.6
    )
    (case,) = promised_json(found)
    assert list(case["phases"]) == ["prefill", "decode"]
    reading, writing = (case["phases"][phase]["seconds"] for phase in ("prefill", "decode"))
    whole = case["step"]["seconds"]
    assert whole == pytest.approx(reading + writing)
    last = case["answers"].pop("time_of_last_token")
    assert writing / 4 < last < writing / 2
    expected = case["predicted_answers"]
    decode, step = case["phases"]["decode"], case["step"]
    per_token = [decode[f"predicted_{end}"] / 4 for end in ("seconds", "low", "high")]
    assert list(expected["time_per_output_token"].values()) == pytest.approx(per_token)
    assert expected["tokens_per_second"]["low"] == pytest.approx(BATCH * 5 / step["predicted_high"])
    assert expected["cost_per_answer"]["high"] == pytest.approx(1e-3 * step["predicted_high"] / BATCH)
    assert "expected per token" in rl.table(found)
    assert expected["energy_per_token"]["value"] == pytest.approx(700 * step["predicted_seconds"] / (BATCH * 5))  # W
    assert case["answers"] == {
        "from": "bound",
        "time_to_first_token": reading,
        "prompt_tokens_per_second": pytest.approx(BATCH * 10 / reading),
        "time_per_output_token": pytest.approx(writing / 4),  # the first of 5 tokens comes from prefill
        "time_per_answer": whole,
        "sequence_tokens_per_second": pytest.approx(5 / whole),
        "tokens_per_second": pytest.approx(BATCH * 5 / whole),
        "energy_per_token": None,  # neither the least nor the most
        "cost_per_million_input_tokens": pytest.approx(1e-3 * reading / (BATCH * 10) * 1e6),  # 3.6 an hour: 0.001 a s
        "cost_per_million_output_tokens": pytest.approx(1e-3 * writing / (BATCH * 5) * 1e6),
        "cost_per_answer": pytest.approx(1e-3 * whole / BATCH),
    }


def test_explain_tells_the_formula_of_each_answer(tmp_path: Path) -> None:
    found = rl.estimate(
        saved(tmp_path, LLAMA), batch=BATCH, prompt_len=10, output_len=9, device=H100, price_per_hour=3.5, dtype="bf16"
    )
    explained = rl.explain(found, path="")
    (answers,) = explained.chapters[0].answers
    assert [steps[:2] for steps in answers.steps] == [(13, 7), (17, 1)]
    (case,) = promised_json(found)
    assert found.kv_cache is not None
    asked = {one.title: one.formula for one in answers.formulas}
    assert len(asked) == len([name for name in case["answers"] if name != "from"])
    assert asked["time per output token"].startswith("time of decode at the bound (")
    assert asked["time per output token"].endswith(") / steps of decode (8)")
    for words in ("price per hour (3.5)", "a million (1,000,000)", "seconds of an hour (3,600)", "batch (2)"):
        assert words in asked["cost of a million output tokens"]
    assert "answers on h100-sxm5-80gb\n" in explained.text  # each line names its time: energy is of the expected one
    *operations, whole = json.loads(json.dumps(explained.data))
    assert len(operations) == len(explained.operations)
    told = {one["name"]: one for one in whole["answers"][0]["formulas"]}
    energy = {"energy_per_token": case["predicted_answers"]["energy_per_token"]["value"]}
    assert {name: one["value"] for name, one in told.items()} == {
        name: value for name, value in (case["answers"] | energy).items() if name != "from"
    }
    assert "x expected time of prefill and decode (" in told["energy_per_token"]["formula"]
    assert told["time_per_output_token"]["formula"] == asked["time per output token"]
    assert [steps[:2] for steps in whole["answers"][0]["steps"]] == [[13, 7], [17, 1]]
    assert (whole["kv_cache"]["held"], whole["kv_cache"]["per_token"]) == (found.kv_cache.held, 128)
    # The same product in several steps is one operation here, with the calls of all of them.
    (head,) = rl.explain(found, path="lm_head", phase="decode").operations
    assert head.calls == 8


def test_an_operation_alone_has_no_phase_of_an_answer() -> None:
    with pytest.raises(RooflensError, match="an operation has no prefill; its phases are forward and backward"):
        rl.explain("mm", shapes=[(4, 4), (4, 4)], phase="prefill")


def test_costs_of_samples_and_training_steps() -> None:
    for mode, extra in (("train", {"cost_per_step"}), ("inference", set())):
        found = rl.estimate("resnet18", batch=4, img_size=32, mode=mode, device="t4", price_per_hour=0.36)
        (case,) = promised_json(found)
        asked, seconds = case["answers"], case["step"]["seconds"]
        assert {name for name in asked if name.startswith("cost")} == {"cost_per_sample"} | extra
        assert asked["cost_per_sample"] == pytest.approx(1e-4 * seconds / 4)
        assert asked.get("cost_per_step", 1e-4 * seconds) == pytest.approx(1e-4 * seconds)


def test_lists_of_lengths_and_batches_are_cases_and_files_keep_them(tmp_path: Path) -> None:
    model, out = saved(tmp_path, LLAMA), tmp_path / "answers.jsonl"
    command = ["estimate", model, "--prompt-len", "5,9", "--output-len", "3", "-b", "1,2", "--device", H100]
    result = CliRunner().invoke(cli, [*command, "-o", str(out)])
    assert result.exit_code == 0
    assert result.stdout.startswith("Answers: hf:llama.json, fp32, generate, 3 tokens out")
    for told in ("first token", "per token", "last token", "tokens /s, all", "energy /token", "cache"):
        assert told in result.output
    read = rl.read(out)
    assert [(case.batch, dict(case.options)["prompt_len"]) for case in read.cases] == [(1, 5), (2, 5), (1, 9), (2, 9)]
    again = rl.estimate(model, prompt_len=9, output_len=3, batch=2, device=H100)
    one = read.where(case=again.cases[0])
    assert one.total("decode").seconds == again.total("decode").seconds
    assert one.by("phase")[1].key == "decode"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"prompt_len": 4}, "has a prompt and an output; give output_len too"),
        ({"output_len": 4}, "has a prompt and an output; give prompt_len too"),
        ({"prompt_len": 0, "output_len": 4}, "prompt_len is 0"),
        ({"prompt_len": 4, "output_len": 4, "mode": "train"}, "mode 'train' is one step"),
        ({"prompt_len": 4, "output_len": 4, "mode": "decode"}, "mode 'decode' is one step"),
        ({"prompt_len": 4, "output_len": 4, "seq_len": 4}, "seq_len=4 is the length of one step"),
        ({"prompt_len": [4, 5], "output_len": 4, "seq_len": 4}, "seq_len=4 is the length of one step"),
        ({"mode": "generate"}, "give prompt_len and output_len, its lengths"),
        ({"prompt_len": 4, "output_len": 4, "kv_cache_len": 9}, "give kv_cache='static' too"),
        ({"prompt_len": 4, "output_len": 4, "kv_cache": "static", "kv_cache_len": 6}, "no room for the 7 tokens"),
        ({"model": "resnet18", "prompt_len": 4, "output_len": 4}, "needs a language model"),
        ({"model": "hf:bert", "prompt_len": 4, "output_len": 4}, "has no mode 'generate'"),
        ({"model": "model.onnx", "prompt_len": 4, "output_len": 4}, "has no mode 'generate'"),
        ({"price_per_hour": 2.0}, "is the price of one device, and none is named"),
        ({"price_per_hour": 2.0, "device": ["t4", "a100-pcie-40gb"]}, "is the price of one device, and 2 are named"),
        ({"price_per_hour": 0, "device": "t4"}, "price_per_hour is 0; it has to be a number above 0"),
        ({"price_per_hour": "3 EUR", "device": "t4"}, "it has to be a number above 0"),
        ({"img_size": 4, "prompt_len": 4, "output_len": 4}, "takes no images"),
        ({"optimizer": "lion", "prompt_len": 4, "output_len": 4}, "unknown optimizer"),
    ],
)
def test_a_combination_that_makes_no_sense_is_an_error_that_says_why(
    tmp_path: Path, given: dict[str, Any], why: str
) -> None:
    with pytest.raises(RooflensError) as error:
        rl.estimate(**({"model": saved(tmp_path, LLAMA)} | given))
    assert why in str(error.value)


def run_by_hand(model: str, **options: Any) -> tuple[Step, Executable]:
    """A whole answer of 9 + 6 tokens of 2 sequences, ready to run on the processor."""
    lengths = {"mode": "generate", "prompt_len": 9, "output_len": 6}
    asked = workload(Request.of({"model": model, "batch": BATCH, **lengths, **options}))
    step = asked.step(asked.runs[0], "cpu")
    return step, eager(step, "cpu")


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (LLAMA, {}),
        (LLAMA, {"kv_cache": "static"}),
        (LLAMA, {"kv_dtype": "int8"}),
        (LLAMA | {"model_type": "mistral", "sliding_window": 11}, {"kv_cache": "static"}),
        (LLAMA | {"model_type": "mistral", "sliding_window": 5}, {}),  # shorter than the prompt
        (LLAMA | ALTERNATING, {}),
        (LLAMA | ALTERNATING, {"kv_cache": "static"}),
        (T5, {}),
    ],
)
def test_a_whole_answer_is_run_token_by_token(tmp_path: Path, config: dict[str, Any], options: dict[str, Any]) -> None:
    step, run = run_by_hand(saved(tmp_path, config), **options)
    first = 1 if config is T5 else 9
    marks: list[int] = []
    calls: list[tuple[int, int, int]] = []
    """Marks before it, tokens that it writes, and those that its cache has when it ends."""

    def see(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        written = kwargs["decoder_input_ids" if config is T5 else "input_ids"]
        calls.append((len(marks), written.shape[1], int(output.past_key_values.get_seq_length())))

    with step.module.register_forward_hook(see, with_kwargs=True) and torch.no_grad():
        for _ in range(2):  # the second answer begins as the first did
            marks.clear()
            calls.clear()
            run.once(lambda: marks.append(len(calls)))
            assert calls == [(0, first, first), *((1, 1, first + n) for n in range(1, 6))]
            assert marks == [1, 6]
    assert run.phases == ("prefill", "decode")


def test_a_cache_that_grows_begins_anew_with_each_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    # transformers 5.17 gives every cache a largest length, -1 without one, and only fills a cache that grows with zeros
    # when it is reset: a second answer found twice the tokens.
    monkeypatch.setattr(transformers.Cache, "max_cache_len", property(lambda _: -1), raising=False)
    config = transformers.LlamaConfig(num_hidden_layers=1)
    sliding = transformers.MistralConfig(num_hidden_layers=1, sliding_window=5)
    assert not is_fixed(transformers.DynamicCache(config=config))
    assert not is_fixed(transformers.DynamicCache(config=sliding))
    assert is_fixed(transformers.StaticCache(config=config, max_cache_len=8))
    assert is_fixed(transformers.StaticCache(config=sliding, max_cache_len=8))


@pytest.mark.parametrize("kv_cache", ["dynamic", "static"])
def test_each_token_of_a_run_is_what_the_model_gives_without_a_cache(tmp_path: Path, kv_cache: str) -> None:
    step, run = run_by_hand(saved(tmp_path, LLAMA), kv_cache=kv_cache)
    last: list[torch.Tensor] = []
    with step.module.register_forward_hook(lambda module, args, output: last.append(output.logits[:, -1])):
        run.once(lambda: None)
    given = torch.cat([step.kwargs["input_ids"], *(one["input_ids"] for one in step.following)], dim=1)
    with torch.no_grad():
        whole = step.module(input_ids=given).logits
    torch.testing.assert_close(torch.stack(last, dim=1), whole[:, 8:])


def test_measured_answers_join_their_estimate(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"prompt_len": 9, "output_len": [1, 3], "batch": BATCH, "estimate": True, "roof": H100}
    found = rl.measure(saved(tmp_path, LLAMA), budget=0.01, device="cpu", isolated=False, profile=True, **asked)
    one, three = found.cases
    assert found.where(case=one, source="measure").phases == ("prefill",)
    profiled = [r for r in found if r.source == "profile" and r.case == three and r.scope == "op"]
    assert {r.phase for r in profiled} == {"prefill", "decode"}
    cut = found.where(case=three)
    timed = {r.phase: r.timing for r in cut if r.source == "measure" and r.timing is not None}
    assert [len(timing.samples) >= 3 for timing in timed.values()] == [True, True]
    _, case = promised_json(found)
    seconds = {phase: timing.median for phase, timing in timed.items()}
    assert case["answers"]["time_to_first_token"] == seconds["prefill"]
    assert case["answers"]["time_per_output_token"] == pytest.approx(seconds["decode"] / 2)
    text = rl.table(found)
    assert "last token" in text
    last = "".join(line for line in text.splitlines() if line.startswith("last token "))
    assert last.count(">=") == 1  # nobody timed that step alone: it is its bound
    assert ">=" not in "".join(line for line in text.splitlines() if line.startswith("first token "))


def test_counted_of_a_whole_answer_are_its_prefill_and_its_middle_step() -> None:
    def of(**options: Any) -> list[tuple[str, Any]]:
        asked = Request.of({"model": "hf:llama", "mode": "inference", **options}).counted_steps()
        return [(one.mode, dict(one.options.in_case(one.mode))) for one in asked]

    # Steps of decode begin with 9, 10, 11, 12 and 13 tokens in the cache, and the last one leaves 14 there.
    assert of(prompt_len=9, output_len=6) == [("prefill", {"seq_len": 9}), ("decode", {"seq_len": 11})]
    assert of(prompt_len=9, output_len=1) == [("prefill", {"seq_len": 9})]
    static = {"kv_cache": "static", "kv_cache_len": 14}
    assert of(prompt_len=9, output_len=6, kv_cache="static") == [
        ("prefill", static | {"seq_len": 9}),
        ("decode", static | {"seq_len": 11}),
    ]
    assert of(mode="decode", seq_len=4) == [("decode", {"seq_len": 4})]
    lengths = {"prompt_len": [9, 8], "output_len": [6, 8]}
    asked = Request.each_of({"model": "hf:llama", "mode": "inference", **lengths})
    counted = [
        Record(
            case=Case(model="hf:llama", dtype="bf16", mode=one.mode, options=one.options.in_case(one.mode)),
            source="counters",
            scope="model",
        )
        for one in counting._steps(asked)
    ]
    # Both prompts are read once; 9 + 6 and 8 + 8 tokens have the same middle step.
    steps = [("prefill", 9), ("decode", 11), ("decode", 12), ("prefill", 8), ("decode", 10)]
    assert [(one.case.mode, dict(one.case.options)["seq_len"]) for one in counted] == steps
    notes = [record.notes for record in counting._told(counted, asked)]
    five, seven = (
        f"the middle one of {n} steps of an answer: {n} times its counts, and those of prefill, are all" for n in (5, 7)
    )
    assert notes == [(), (five, seven), (seven,), (), (five,)]


def test_what_cannot_be_run_of_a_whole_answer_says_why() -> None:
    for run in (rl.measure, rl.counters):
        with pytest.raises(RooflensError, match="give prompt_len and output_len, its lengths"):
            run("hf:llama", mode="generate")
    with pytest.raises(RooflensError, match="its cache grows with each; give kv_cache='static'"):
        rl.measure("hf:llama", prompt_len=4, output_len=4, cuda_graph=True)
