"""The table of options: everything that names an option is made from it, or held against it here."""

from __future__ import annotations

import csv
import inspect
import re
from dataclasses import fields
from io import StringIO
from typing import Any

import pytest

import rooflens as rl
from rooflens.errors import InvalidValue, UnknownOption
from rooflens.records import Case, Memory
from rooflens.runs.options import COUNTING, OPTIONS, RUNNING, Options
from rooflens.runs.run import Run
from rooflens.study import OPTIONS as IN_STUDIES


@pytest.mark.parametrize(
    ("function", "source"),
    [(rl.estimate, "estimate"), (rl.largest_batch, "estimate"), (rl.measure, "measure"), (rl.counters, "counters")],
)
def test_signatures_have_the_options_of_their_source_with_the_defaults_of_the_table(
    function: object, source: str
) -> None:
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    wanted = {name: line.default for name, line in OPTIONS.items() if source in line.sources}
    assert wanted.keys() == OPTIONS.keys() & parameters.keys()
    for name, default in wanted.items():
        # Sizes by name are a mapping in Python, and pairs in the table.
        assert parameters[name].default == (None if name == "dims" else default)
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


def test_the_table_has_a_line_for_every_field() -> None:
    assert list(OPTIONS) == [field.name for field in fields(Options)]
    for line in OPTIONS.values():
        assert line.help.endswith(".")
        assert line.default is None or isinstance(line.default, line.kind if line.kind is not dict else tuple)
        assert not line.choices or line.default is None or line.default in line.choices


def test_what_tells_two_steps_apart() -> None:
    assert COUNTING == {"causal", "fusion"}
    assert RUNNING == {"cuda_graph", "flush", "gpus", "run"}
    assert IN_STUDIES.keys() == OPTIONS.keys() - {"img_size", "seq_len", "dims"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"optimizer": "lion"}, "unknown optimizer 'lion'; known: none, sgd, adam, adamw"),
        ({"fusion": None}, "unknown fusion None; known: none, pointwise, attention"),
        ({"fused": "yes"}, "fused is 'yes'; it has to be True or False"),
        ({"compile": 1}, "compile is 1; it has to be True or False"),
        ({"img_size": 0}, "img_size is 0; it has to be a whole number of at least 1"),
        ({"seq_len": True}, "seq_len is True; it has to be a whole number of at least 1"),
        ({"gpus": 2.0}, "gpus is 2.0; it has to be a whole number of at least 1"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_an_error(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(message)):
        Options(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"optimizer": "adamw"}, {"fused": True}, {"accumulation_steps": 2}])
def test_what_is_about_training_is_an_error_in_other_modes(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=r"is about a training step, which mode 'inference' is not; give mode train"):
        Run(model="net", options=Options(**given))
    Run(model="net", mode="train", options=Options(**given))
    Run(model="net", options=Options(optimizer="none"))  # which is so


def test_a_model_of_tokens_has_no_layout_of_images() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(InvalidValue, match=r"channels_last=True has no meaning for 'hf:gpt2', which takes no images"):
        rl.estimate("hf:gpt2", seq_len=8, channels_last=True)


def test_a_case_names_what_is_not_the_default_and_means_something() -> None:
    run = Run(model="net", batch=4, mode="train", options=Options(fused=True, gpus=2, profile=True, seq_len=8))
    assert run.case("t4") == Case(
        model="net", device="t4", batch=4, mode="train", options=(("fused", True), ("gpus", 2), ("seq_len", 8))
    )
    assert run.options.in_case("inference") == (("gpus", 2), ("seq_len", 8))
    assert Options(optimizer="none", fused=True).in_case("train") == (("optimizer", "none"),)


def test_a_case_gives_its_run_back() -> None:
    options = Options(dims=(("a", 1), ("b=c", 2)), causal=True, fusion="attention", compile=True)
    run = Run(model="net.onnx", batch=2, dtype="bf16", options=options)
    assert run.case().options[2:3] == (("dims", "a=1, b=c=2"),)
    assert Run.of(run.case("t4")) == run
    # What a case leaves as it is runs in the default dtype, unless it is a file.
    assert Run.of(Case(model="net", dtype="as-is")).dtype == "fp32"
    assert Run.of(Case(model="net.onnx", dtype="as-is")).dtype == "as-is"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((("tiles", 3),), "no option 'tiles'"),
        ((("dims", "height"),), "dims is 'height'"),
        ((("dims", 7),), "dims is 7"),
        ((("img_size", "large"),), "img_size is 'large'"),
    ],
)
def test_options_of_a_case_that_nobody_knows_are_an_error(options: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        Run.of(Case(model="net.onnx", options=options))


def test_an_estimate_of_a_compiled_step_fuses_and_knows_nothing_of_running() -> None:
    options = Options(compile=True, flush=True, gpus=2, seq_len=3)
    assert options.of_source("estimate") == Options(compile=True, fusion="pointwise", seq_len=3)
    assert Options(compile=True, fusion="attention").of_source("estimate").fusion == "attention"
    assert Options(causal=True, flush=True).of_source("counters") == Options()


def test_batches_are_runs_each_once() -> None:
    run = Run(model="net")
    assert [each.batch for each in run.with_batches([4, 1, 4])] == [4, 1]
    assert run.with_batches(None) == (run,)
    for wrong in (0, [], [1, None], "64", 2.5, [True]):
        with pytest.raises(InvalidValue, match="cannot be run; give whole numbers of at least 1"):
            run.with_batches(wrong)


def test_records_are_chosen_by_options_of_their_case_and_have_their_sizes_in_columns() -> None:
    cases = [
        Case(model="net", batch=batch, mode="decode", options=options)
        for batch in (1, 2)
        for options in ((("kv_cache", "static"), ("seq_len", 8)), (("seq_len", 16),), ())
    ]
    records = rl.RecordSet(
        rl.Record(case=case, source="estimate", scope="model", memory=Memory(peak=100 * case.batch, parameters=7))
        for case in cases
        if case.batch is not None
    )
    assert [case.batch for case in records.where(seq_len=8).cases] == [1, 2]
    assert records.where(seq_len=16, batch=2).cases == (cases[4],)
    assert records.where(seq_len=None, batch=2).cases == (cases[5],)
    assert records.where(kv_cache="static").cases == records.where(seq_len=8).cases
    assert len(records.where(kv_cache="dynamic", compile=False).cases) == 4  # what is not named is the default
    assert len(records.where(weights="none")) == 6  # which cases do not name either
    assert len(records.where(optimizer="none")) == 0  # the default is another one
    assert records.where(seq_len=[16, None], batch=2).cases == tuple(cases[4:])
    assert records.where(batch=(2, 3)).cases == records.where(batch=2).cases
    assert len(records.where(weights=["int8", "none"])) == 6
    assert (len(records.where(batch=[])), len(records.where(options=[()])), len(records.where(options=()))) == (0, 2, 2)
    with pytest.raises(InvalidValue, match="unknown condition 'seqlen'; known: accumulation_steps, batch"):
        records.where(seqlen=8)
    rows = list(csv.DictReader(StringIO(rl.table(records, format="csv"))))
    assert [(row["seq_len"], row["peak"]) for row in rows[:3]] == [("8", "100"), ("16", "100"), ("", "100")]
    assert {row["peak"] for row in rows[3:]} == {"200"}


@pytest.mark.parametrize("function", [rl.table, rl.roofline, rl.explore, lambda given: rl.chart("latency", given)])
@pytest.mark.parametrize(("given", "hint"), [("run.jsonl", r"rl\.read\('run\.jsonl'\)"), (5, "no record set$")])
def test_what_is_no_record_set_is_told_and_a_file_how_to_read_it(function: Any, given: object, hint: str) -> None:
    with pytest.raises(InvalidValue, match=hint):
        function(given)


def test_a_table_has_a_width() -> None:
    with pytest.raises(InvalidValue, match="width is -4; give columns"):
        rl.table(rl.RecordSet(()), width=-4)


FUNCTIONS = [each for name in rl.__all__ if inspect.isfunction(each := getattr(rl, name))]
HAVE_OPTIONS = [
    each
    for each in FUNCTIONS
    if each.__module__.startswith("rooflens.api")
    and each is not rl.explain  # the arguments of an operation may have any name
    and any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(each).parameters.values())
]


@pytest.mark.parametrize("function", HAVE_OPTIONS, ids=lambda function: function.__name__)
def test_every_public_function_names_the_options_that_it_has(function: Any) -> None:
    with pytest.raises(UnknownOption) as caught:
        function(colour=True)
    assert isinstance(caught.value, TypeError)  # as Python's own
    options = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert "unknown option 'colour'" in str(caught.value)
    assert f"({function.__name__} has {', '.join(options)}" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "misspelt", "meant"),
    [
        (rl.estimate, "seqlen", "seq_len"),
        (rl.measure, "batch_size", "batch"),
        (rl.rank, "dtpye", "dtype"),  # an option of the function that it calls
        (rl.advise, "fussion", "fusion"),
        (rl.replay, "optimiser", "optimizer"),
        (rl.explain, "batchsize", "batch"),
        (rl.table, "columns_", "columns"),
    ],
)
def test_a_misspelt_option_is_told_the_nearest(function: Any, misspelt: str, meant: str) -> None:
    with pytest.raises(UnknownOption, match=f"unknown option '{misspelt}'; did you mean {meant}[?,]"):
        function("resnet18", **{misspelt: 1})


def test_a_replay_takes_no_device() -> None:
    with pytest.raises(UnknownOption) as caught:
        rl.replay("resnet18", device="t4")
    assert ", device," not in str(caught.value)
