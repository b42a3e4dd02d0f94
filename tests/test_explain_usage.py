"""Explanations asked for wrongly, and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.arithmetic import value_of
from tests.onnx_graphs import node, save, weight
from tests.ranked_steps import a_card, relu_on

import rooflens as rl
from rooflens.cli import explain as command
from rooflens.cli.main import cli
from rooflens.errors import InvalidValue, ModelError, UnknownName
from rooflens.records import EVERY_PHASE, Case, Record

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    return lambda *words: CliRunner().invoke(cli, ["explain", *map(str, words)])


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message", "name", "arguments"),
    [
        (UnknownName, "unknown operation or model 'convolutoin'; did you mean convolution,", "convolutoin", {}),
        (UnknownName, "unknown operation or model 'resnet181'; did you mean resnet18,", "resnet181", {}),
        (UnknownName, "unknown operation or model 'mmm'", "mmm", {"shapes": ["2x2"]}),
        (UnknownName, "unknown argument of mm 'mat'; did you mean mat2? (it takes self, mat2", "mm", {"mat": "2x2"}),
        (UnknownName, "unknown option 'bach'; did you mean batch", "resnet18", {"path": "", "bach": 2}),
        (UnknownName, "unknown module path 'conv'; did you mean conv1", "resnet18", {"path": "conv"}),
        (UnknownName, "unknown module path 'layer9'; did you mean layer4, layer3, ", "resnet18", {"path": "layer9"}),
        (InvalidValue, "mm needs the shape of mat2 (like 64x3x7x7,", "mm", {"shapes": ["2x2"]}),
        (InvalidValue, "softmax needs dim (a whole number); it also takes dtype", "softmax", {"shapes": ["2x2"]}),
        (InvalidValue, "lstm needs the shape of input (like 64x3x7x7, or 32x128:int64", "lstm", {}),
        (InvalidValue, "lstm: the input is 5x3; it is steps x batch x", "lstm", {"input": "5x3", "hidden_size": 2}),
        (InvalidValue, "lstm: hidden_size must be greater than zero", "lstm", {"input": "5x3x2", "hidden_size": 0}),
        (InvalidValue, "mm: 3 shapes for 2 tensors that are not named: self, mat2", "mm", {"shapes": ["2", "2", "2"]}),
        (
            InvalidValue,
            "cat: 1 shapes for 0 tensors that are not named: none; name the list: --tensors 3x4,3x4",
            "cat",
            {"shapes": ["5x3"]},
        ),
        (
            InvalidValue,
            "index_put: 3 shapes for 2 tensors that are not named: self, values; name the list: --indices 3x4,3x4",
            "index_put",
            {"shapes": ["5x3"] * 3},
        ),
        (UnknownName, "unknown operation or model 'mine::nothing'", "mine::nothing", {}),
        (
            UnknownName,
            "unknown operation or model 'softmaxx'; did you mean softmax",
            "aten::softmaxx",
            {"shapes": ["2"]},
        ),
        (InvalidValue, "relu: self is '2y3'; it has to be a shape like", "relu", {"shapes": ["2y3"]}),
        (InvalidValue, "relu: self is (-1, 2); it has to be a shape", "relu", {"shapes": [(-1, 2)]}),
        (InvalidValue, "unknown element type 'int7x'; known: fp64,", "relu", {"shapes": ["2:int7x"]}),
        (InvalidValue, "attention: is_causal is 'perhaps'", "attention", {"shapes": ["2x2x2"], "is_causal": "perhaps"}),
        (InvalidValue, "unknown phase 'sideways'; known: forward, backward", "relu", {"phase": "sideways"}),
        (InvalidValue, "an operation has no optimizer", "relu", {"shapes": ["2"], "phase": "optimizer"}),
        (InvalidValue, "unknown dtype 'fp12'", "relu", {"shapes": ["2"], "dtype": "fp12"}),
        (InvalidValue, "transpose moves and computes nothing", "transpose", {"shapes": ["2x2"], "dim0": 0, "dim1": 1}),
        (InvalidValue, "there is no operation of phase 'optimizer'", "resnet18", {"path": "fc", "phase": "optimizer"}),
        (ModelError, "mm: RuntimeError: ", "mm", {"shapes": ["2x3", "4x5"]}),
    ],
)
def test_errors_name_what_is_wrong_and_what_is_known(
    error: type[Exception], message: str, name: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(error) as caught:
        rl.explain(name, **arguments)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_a_model_without_a_path_lists_its_paths() -> None:
    paths = r"choose some by their module path: conv1, bn1, .* \.\.\. \('' is the whole model\)"
    with pytest.raises(InvalidValue, match=rf"resnet18 has \d+ operations; {paths}"):
        rl.explain("resnet18")


def test_records_that_cannot_be_explained() -> None:
    timed = Record(case=Case(model="resnet18"), source="measure", scope="model")
    with pytest.raises(InvalidValue, match="none of these records keeps the shapes of its call"):
        rl.explain(rl.RecordSet([timed]), path="")
    with pytest.raises(InvalidValue, match="records know their shapes and types; give path and phase"):
        rl.explain(timed, dtype="bf16")


# Command line ---------------------------------------------------------------------------------------------------------


def test_phases_repeated_for_a_light_help_are_those_of_the_records() -> None:
    assert command.PHASES == EVERY_PHASE


def test_the_command_prints_the_text_of_its_twin(run: Run) -> None:
    words = ["--input", "2x3x8x8", "--weight=5x3x3x3", "--stride", 2, "--padding", 1, "--device", "t4"]
    result = run("convolution", *words)
    twin = rl.explain("convolution", input="2x3x8x8", weight="5x3x3x3", stride=2, padding=1, device="t4")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{twin}\n", "")


def test_flags_and_words_with_hyphens(run: Run) -> None:
    result = run("attention", "--shape", "2x3x4x8", "--is-causal", "--format", "json")
    (operation,) = json.loads(result.stdout)
    assert operation["work"]["flops"]["matmul.fp32"] == 3072
    assert operation["kernel_work"]["flops"]["matmul.fp32"] == 1920
    assert dict(operation["call"]["arguments"])["causal"] is True
    assert [value_of(line["expression"]) for line in operation["flops"]] == [3072, 480, 96]


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        (["softmax", "--shape", "8x1000", "--dim", 1], 1),
        (["softmax", "--shape", "8x1000", "--dim=-1"], -1),
        (["softmax", "--shape", "8x1000", "--dim", "-1"], -1),
        (["aten::softmax", "--dim", 1, "--shape", "8x1000"], 1),
        (["sum", "--shape", "8x1000", "--dim", "0,1"], [0, 1]),
        (["cat", "--tensors", "8x4,8x3", "--dim", 1], 1),
    ],
)
def test_dim_is_an_argument_of_an_operation(run: Run, words: list[object], argument: object) -> None:
    (operation,) = json.loads(run(*words, "--format", "json").stdout)
    assert dict(operation["call"]["arguments"])["dim"] == argument


def test_mode_is_an_argument_of_an_operation(run: Run) -> None:
    (operation,) = json.loads(run("linalg_qr", "--A", "4x4", "--mode", "r", "--format", "json").stdout)
    assert dict(operation["call"]["arguments"])["mode"] == "r"


def test_a_mode_of_a_model_is_checked(run: Run) -> None:
    assert "unknown mode 'sideways'; known: inference" in str(run("resnet18", "--mode", "sideways").exception)


def test_dim_is_a_size_of_an_onnx_file(run: Run, tmp_path: Path) -> None:
    # 5 x 3 rows of 8 numbers: 2 x 5 x 3 x 8 x 8 FLOP.
    product = node("MatMul", "x w", "y")
    path = save(tmp_path, [product], {"x": ("rows", 3, 8)}, held=[weight("w", (8, 8))])
    (operation,) = json.loads(run(path, "--path", "", "--dim", "rows=5", "--format", "json").stdout)
    assert operation["work"]["flops"] == {"matmul.fp32": 1920}


def test_an_operation_may_have_the_namespace_of_torch(run: Run) -> None:
    assert run("aten::trace", "--self", "100x80").stdout == run("trace", "--self", "100x80").stdout != ""


def test_a_model_with_options_of_estimate(run: Run) -> None:
    result = run("resnet18", "-b", "1,2", "--img-size", 64, "--path", "conv1", "--format", "json")
    assert [entry["call"]["outputs"] for entry in json.loads(result.stdout)] == [
        [{"fp32": [1, 64, 32, 32]}],
        [{"fp32": [2, 64, 32, 32]}],
    ]


def test_the_list_of_operations(run: Run) -> None:
    everything = run("--list")
    assert everything.exit_code == 0
    assert max(map(len, everything.stdout.splitlines())) <= 80
    assert "native_layer_norm," in everything.stdout
    cells = [f"quantized_quantized_{kind}_cell_dynamic" for kind in ("gru", "lstm", "rnn_relu", "rnn_tanh")]
    layers = ["quantized_gru", "quantized_lstm", *cells, "recurrent", "recurrent_backward"]
    assert json.loads(run("--list", "recurrent", "--format", "json").stdout) == {"recurrent": layers}
    assert isinstance(run("--list", "matmull").exception, UnknownName)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name an operation, a record file or a model first"),
        (["--input", "2x2"], "name an operation, a record file or a model first"),
        (["mm", "2x2", "2x2"], "'2x2' stands alone; write an argument by its name, --input 32x784, and --shape"),
        (
            ["mm", "--shapes", "2x2"],
            "no operation or model has an argument --shapes; did you mean shape, phase?; --help",
        ),
        (["mm", "--phase", "sideways"], "'sideways' is not one of"),
        (["product.onnx", "--dim", 1], "'1' is no name with a size; write past_sequence_length=128"),
    ],
)
def test_wrong_usage(run: Run, words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_time_limit_may_be_a_fraction_of_a_second(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr("rooflens.explain", lambda what, **options: given.update(options))
    run("own.py:build", "--limit", "1.5", "--seq-len", "8")
    assert (given["limit"], given["seq_len"]) == (1.5, 8)


def test_the_expected_time_of_a_step_is_told_with_its_parts() -> None:
    # 10 ms on the host, then 1 ms on the device at 0.8 of 1 TB/s.
    card = a_card("one", host__operation=0.01)
    (whole,) = rl.explain(relu_on(card), path="").chapters
    (expected,) = whole.expected
    assert (expected.busy, expected.host) == pytest.approx((1e-3, 0.01))
    assert expected.waits_for == "host-bound"
    assert dict(expected.families) == {"elementwise": pytest.approx(1e-3)}
    assert expected.seconds == pytest.approx(0.011)
    text = rl.explain(relu_on(card), path="").text
    assert "expected on one\n" in text
    words = " ".join(text.split())
    assert "10.00 ms for launching them waits 10.00 ms of the device" in words  # 11 ms less its 1 ms of work
    assert "host-bound: a call begins when it is launched" in words
