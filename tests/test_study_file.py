"""Study files: what they may say, and how exactly a mistake is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.study_samples import SMALL, written

from rooflens.errors import StudyFileError
from rooflens.runs.options import FUSIONS, OPTIMIZERS
from rooflens.runs.options import OPTIONS as TABLE
from rooflens.study import (
    OPTIONS,
    Claim,
    Cluster,
    Exclusion,
    Grid,
    Hypothesis,
    Recorded,
    Settings,
    Side,
    Study,
    device_notes,
    read_study,
)
from rooflens.study.grid import cells
from rooflens.study.toml_lines import line_of

EVERYTHING = """\
title = "Everything"
question = "Which is faster?"
method = '''
Two lines,
of text.'''
models = ["resnet18", "my/model.py:build"]
devices = ["V100 SXM2 16GB", "cuda", "mine.toml"]
batches = [1, 64]
dtypes = ["fp32", "amp-bf16"]
modes = ["inference", "train"]
seq_lens = 128
img_sizes = [112, 224]
sources = ["estimate", "measure", "counters"]
budget = 7200
figures = "reported.csv"

[options]
channels_last = [false, true]
optimizer = "adamw"
gpus = [1, 2]

[estimate]
limit = 60

[measure]
devices = "cpu"
budget = 0.5
fresh = true
roof = "measured"

[counters]
cache = "none"

[[exclude]]
model = "resnet*"
batch = ">= 64"
device = ["V100 SXM2 16GB"]
why = "does not fit"

[[recorded]]
files = ["old/*.csv"]
device = "v100-sxm2-16gb"
batch = 1
dtype = "fp32"

[[hypothesis]]
text = "The V100 is faster"
quantity = "time"
left = {device = "V100 SXM2 16GB", times = 2}
relation = "<"
right = {device = "cuda", phase = "forward"}
for = "most model"
margin = "5 %"
where = {mode = "train"}

[[hypothesis]]
text = "It takes less than 10 ms"
quantity = "time"
left = {}
relation = "<="
right = "10 ms"

[[hypothesis]]
text = "It feels fast"

[cluster.home]
partition = "gpu"
time = "1-02:00:30"
setup = ["module load cuda"]
prefix = "singularity exec --nv image.sif"

[cluster.home.options]
qos = "high"

[cluster.home.devices."V100 SXM2 16GB"]
gres = "gpu:v100:1"
time = 30
"""
DEVICE = """\
title = "Mine"
vendor = "me"
kind = "gpu"
[bandwidth]
dram = "100 GB/s"
[matmul]
fp32 = "1 TFLOP/s"
"""


def everything(folder: Path) -> Study:
    (folder / "old").mkdir()
    (folder / "old" / "a.csv").touch()
    (folder / "mine.toml").write_text(DEVICE)
    (folder / "reported.csv").write_text("quantity,value\n")
    return read_study(written(folder, EVERYTHING)).study


def test_all_that_a_file_may_say(tmp_path: Path) -> None:
    v100 = "tesla-v100-sxm2-16gb"
    assert everything(tmp_path) == Study(
        title="Everything",
        question="Which is faster?",
        method="Two lines,\nof text.",
        grids=(
            Grid(
                models=("resnet18", "my/model.py:build"),
                devices=(v100, "cuda", "mine.toml"),
                batches=(1, 64),
                dtypes=("fp32", "amp-bf16"),
                modes=("inference", "train"),
                seq_lens=(128,),
                img_sizes=(112, 224),
                options={"channels_last": (False, True), "optimizer": ("adamw",), "gpus": (1, 2)},
                sources=("estimate", "measure", "counters"),
                devices_of={"measure": ("cpu",)},
            ),
        ),
        excluded=(
            Exclusion(conditions={"model": ("resnet*",), "batch": (">= 64",), "device": (v100,)}, why="does not fit"),
        ),
        recorded=(Recorded(files=("old/*.csv",), case={"device": v100, "batch": 1, "dtype": "fp32"}),),
        settings=Settings(
            budget=0.5,
            limits={"estimate": 60.0, "measure": 600.0, "counters": 600.0},
            fresh=True,
            roofs={"measure": "measured"},
            cache="none",
        ),
        budget=7200.0,
        figures="reported.csv",
        hypotheses=(
            Hypothesis(
                text="The V100 is faster",
                claim=Claim(
                    quantity="time",
                    left=Side(conditions={"device": v100}, times=2.0),
                    relation="<",
                    right=Side(conditions={"device": "cuda", "phase": "forward"}),
                    every="model",
                    amount="most",
                    margin=0.05,
                    where={"mode": "train"},
                ),
            ),
            Hypothesis(
                text="It takes less than 10 ms",
                claim=Claim(quantity="time", left=Side(), relation="<=", right=Side(value=0.01)),
            ),
            Hypothesis(text="It feels fast"),
        ),
        clusters={
            "home": Cluster(
                name="home",
                partition="gpu",
                time=26 * 60 + 1,  # 26 h and 30 s, in whole minutes
                setup=("module load cuda",),
                prefix="singularity exec --nv image.sif",
                options={"qos": "high"},
                devices={v100: Cluster(name="home", gres="gpu:v100:1", time=30)},
            )
        },
    )


def test_what_a_cluster_says_of_a_device_comes_first(tmp_path: Path) -> None:
    cluster = everything(tmp_path).clusters["home"]
    own = cluster.on("tesla-v100-sxm2-16gb")
    assert (own.partition, own.gres, own.time) == ("gpu", "gpu:v100:1", 30)
    assert (own.prefix, own.options) == ("singularity exec --nv image.sif", {"qos": "high"})
    assert cluster.on("t4") is cluster


def test_grids_take_from_the_top_what_they_do_not_say(tmp_path: Path) -> None:
    text = 'title = "T"\nmodels = "resnet18"\nbatches = [1]\n[options]\ncompile = true\n[measure]\ndevices = "cpu"\n'
    text += '[[grid]]\nsources = ["measure"]\n[[grid]]\nmodels = ["alexnet"]\nbatches = [8]\ndevices = ["t4"]\n'
    text += "[grid.options]\nfused = true\n"
    first, second = read_study(written(tmp_path, text)).study.grids
    compiled = {"compile": (True,)}
    assert first == Grid(
        models=("resnet18",), batches=(1,), options=compiled, sources=("measure",), devices_of={"measure": ("cpu",)}
    )
    assert second == Grid(
        models=("alexnet",), batches=(8,), devices=("tesla-t4",), options={**compiled, "fused": (True,)}
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("models", "modelz", 2, r"modelz is not known here \(did you mean models or modes\?\); allowed: title"),
        ('title = "Small"', "", None, "title is missing"),
        ('"Small"', "3", 1, "title is 3; it has to be text"),
        ('"alexnet"]', '"resnet18"]', 2, r"models\[2\] names 'resnet18' twice"),
        ("[1, 2, 4]", "[\n  1,\n  0,\n]", 5, r"batches\[2\] is 0; it has to be a whole number of at least 1"),
        ("[1, 2, 4]", '"many"', 3, "batches is 'many'; it has to be a whole number"),
        ("[1, 2, 4]", "[true]", 3, r"batches\[1\] is True"),
        ("[1, 2, 4]", "[]", 3, "batches is empty"),
        ('"t4"', '"t44"', 4, r"devices\[1\] is 't44': unknown device 't44'.*for this machine write cpu or cuda"),
        ('"t4"', '"no.toml"', 4, r"devices\[1\] is 'no.toml': cannot read device file"),
        ("", 'dtypes = ["fp23"]', 5, r"dtypes\[1\] is 'fp23' \(did you mean fp32\?\); allowed: default, fp32"),
        ("", 'dtypes = ["int4"]', 5, "as-is; int4 is a format of weights: weights = 'int4'"),
        ("", 'dtypes = ["half", "fp16"]', 5, r"dtypes\[2\] names 'fp16' twice"),
        ("", 'sources = ["meazure"]', 5, r"did you mean measure\?"),
        ("", 'figures = "no.csv"', 5, "figures is 'no.csv', and there is no such file"),
        ("", "budget = -1", 5, "budget is -1; it has to be a number of seconds above 0"),
        ("", "options = 3", 5, r"options is 3; it has to be a table: \[options\]"),
        ("", '[options]\noptimizer = "adma"', 6, r"options.optimizer is 'adma' \(did you mean adam"),
        ("", '[options]\ncompile = "yes"', 6, "options.compile is 'yes'; allowed: true, false"),
        ("", "[measure]\nlimit = 60\nbudjet = 3", 7, r"measure.budjet is not known here \(did you mean budget\?\)"),
        ("", '[counters]\ncache = ["all"]', 6, r"counters.cache is \['all'\]; it has one value"),
        ("", '[grid]\nmodels = ["vgg16"]', 5, r"grid has to be a list of tables, each under \[\[grid\]\]"),
        ("", '[[exclude]]\nwhy = "so"', 5, r"exclude\[1\] names no condition"),
        ("", '[[exclude]]\nmodel = "vgg16"', 5, r"exclude\[1\] leaves nothing out"),
        ("", "[[exclude]]\nbatch = 1\n\n[[exclude]]\nbatch = 3", 8, r"exclude\[2\] leaves nothing out"),
        ("", '[[exclude]]\ndtype = "fp23"', 6, r"exclude\[1\].dtype is 'fp23' \(did you mean fp32\?\)"),
        ("", '[[exclude]]\nmodel = "*"', 5, "exclude leaves nothing of the study"),
        ("", '[[recorded]]\nbatch = 1\nfiles = "no/*.csv"', 7, r"recorded\[1\].files\[1\] is 'no/\*.csv', and no such"),
        ("", '[[recorded]]\nfiles = ["/etc/hosts"]', 6, "name files from the folder of the study"),
        ("", '[cluster.x]\npartitoin = "a"', 6, r"cluster.x.partitoin is not known.*\[cluster.NAME.options\]"),
        ("", '[cluster.x]\ntime = "1:30"', 6, "cluster.x.time is '1:30'; write minutes"),
        ("", '[cluster.x.options]\n"--qos" = "a"', 6, "its dashes; write 'qos'"),
        ("", '[cluster.x.devices.t44]\ngres = "a"', 5, "cluster.x.devices.t44 names a device: unknown device"),
        ("", '[[hypothesis]]\nquantity = "time"', 5, "text is missing: say what is expected"),
        ("", '[[hypothesis]]\ntext = "a"\nquantity = "time"', 5, "left is missing; a claim has quantity, left"),
        ("", '[[hypothesis]]\ntext = "a"\nmargin = 1', 7, "margin belongs to a claim, and there is none"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int | None, words: str) -> None:
    path = written(tmp_path, SMALL.replace(old, new) if old else SMALL + new)
    with pytest.raises(StudyFileError) as caught:
        read_study(path)
    place = f"{path}, line {line}: " if line is not None else f"{path}: "
    assert str(caught.value).startswith(place)
    assert re.search(words, str(caught.value))


CLAIM = """
[[hypothesis]]
text = "a"
quantity = "time"
left = {device = "t4"}
relation = "<"
right = {device = "a100-sxm4-40gb"}
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('"time"', '"tyme"', 8, r"quantity is 'tyme' \(did you mean time\?\)"),
        ('"<"', '"<<"', 10, r"relation is '<<'.*allowed: <, <=, >, >=, ="),
        ('{device = "t4"}', '{devize = "t4"}', 9, r"left.devize is not known here \(did you mean device\?\)"),
        ('{device = "t4"}', '{device = "h100-sxm"}', 9, "left.device is 'h100-sxm', which the study does not hold"),
        ('{device = "t4"}', '{model = "alexnt"}', 9, r"which the study does not hold \(did you mean alexnet\?\)"),
        ('{device = "t4"}', "{batch = 8}", 9, "left.batch is 8, which the study does not hold; it holds: 1, 2, 4"),
        ('{device = "t4"}', "{batch = [1, 2]}", 9, r"left.batch is \[1, 2\]; give one value"),
        ('{device = "t4"}', '"10 GB"', 9, "left is '10 GB': '10 GB' is not in s"),
        ('{device = "t4"}', '{times = "2"}', 9, "left.times is '2'; it has to be a number above 0"),
        ('{device = "t4"}', '{quantity = "pearson"}', 9, "a correlation is compared with a correlation only"),
        ('{device = "t4"}', '{phase = "sideways"}', 9, "is 'sideways'; allowed: forward, backward, optimizer"),
        ("", 'for = "each model"', 12, "for is 'each model'; write every, most or some"),
        ("", 'for = "every modl"', 12, r"for is 'every modl' \(did you mean mode"),
        ("", 'margin = "5"', 12, "margin is '5'; it has to be a share like 0.05, or '5 %'"),
    ],
)
def test_a_mistake_in_a_claim(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    path = written(tmp_path, SMALL + (CLAIM.replace(old, new) if old else CLAIM + new))
    with pytest.raises(StudyFileError) as caught:
        read_study(path)
    assert f"line {line}: hypothesis[1]." in str(caught.value)
    assert re.search(words, str(caught.value))


def test_a_device_of_this_machine_may_have_any_name(tmp_path: Path) -> None:
    text = SMALL.replace('"t4"', '"cuda"') + CLAIM.replace('"t4"', '"h100-sxm"')
    (hypothesis,) = read_study(written(tmp_path, text)).study.hypotheses
    assert hypothesis.claim is not None
    assert hypothesis.claim.left.conditions == {"device": "h100-sxm5-80gb"}


def test_a_name_that_fits_several_devices_is_the_one_that_people_mean(tmp_path: Path) -> None:
    text = SMALL.replace('"t4"', '"h100", "t4", "2x a100"') + CLAIM.replace('"t4"', '"h100"')
    text += '[[exclude]]\ndevice = "A100"\nwhy = "rented"\n[cluster.slurm.devices."h100"]\ngres = "gpu:1"\n'
    text = text.replace('"a100-sxm4-40gb"]', '"a100", "a100-sxm4-40gb"]')
    path = written(tmp_path, text)
    study = read_study(path).study
    assert "h100-sxm5-80gb" in study.grids[0].devices
    assert "2x a100-sxm4-80gb" in study.grids[0].devices
    assert study.excluded[0].conditions == {"device": ("a100-sxm4-80gb",)}
    assert study.hypotheses[0].claim is not None
    assert study.hypotheses[0].claim.left.conditions == {"device": "h100-sxm5-80gb"}
    assert list(study.clusters["slurm"].devices) == ["h100-sxm5-80gb"]
    told = {note.partition(";")[0] for note in device_notes(path)}
    assert told == {f"{name} is taken for {name.lower()}-sxm4-80gb" for name in ("a100", "A100")} | {
        "h100 is taken for h100-sxm5-80gb"
    }


def test_what_is_no_file_and_no_toml(tmp_path: Path) -> None:
    with pytest.raises(StudyFileError, match=r"cannot read study .*no.toml': No such file"):
        read_study(tmp_path / "no.toml")
    with pytest.raises(StudyFileError, match=r"is no TOML file: .*at line 2"):
        read_study(written(tmp_path, 'title = "a"\nmodels = [,]\n'))


def test_options_are_those_of_the_sources() -> None:
    assert OPTIONS["fusion"].choices == FUSIONS
    assert OPTIONS["optimizer"].choices == OPTIMIZERS
    assert {name for name in TABLE if name not in OPTIONS} == {"img_size", "seq_len", "dims"}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_the_line_of_a_value_is_found_among_empty_lines_and_comments(gaps: list[int], data: st.DataObject) -> None:
    lines, right = [], {}
    for number, gap in enumerate(gaps):
        lines += data.draw(st.lists(st.sampled_from(["", "# k0 = 1", "  "]), min_size=gap, max_size=gap))
        if number % 3 == 2:
            lines.append(f"[t{number}]")
        lines.append(f'k{number} = """' if number % 2 else f"k{number} = {number}")
        right[number] = len(lines)
        if number % 2:
            lines += ["[no]", 'k9 = 1 """']
    text = "\n".join(lines)
    table: tuple[str, ...] = ()
    for number in range(len(gaps)):
        table = (f"t{number}",) if number % 3 == 2 else table
        assert line_of(text, (*table, f"k{number}")) == right[number]
    assert line_of(text, ("nowhere",)) is None


def test_a_study_of_too_many_cells_is_refused_before_they_are_made(tmp_path: Path) -> None:
    axis = ", ".join(map(str, range(1, 3001)))
    path = tmp_path / "study.toml"
    text = f'title = "Many"\nmodels = ["a", "b"]\nbatches = [{axis}]\nseq_lens = [{axis}]\n'
    path.write_text(text)
    message = "line 2: models and the other axes have 18,000,000 cells; a study has at most 100,000"
    with pytest.raises(StudyFileError, match=re.escape(message)):
        read_study(path)
    path.write_text(f'title = "Many"\nbatches = [{axis}]\n[[grid]]\nmodels = ["a"]\nimg_sizes = [{axis}]\n')
    with pytest.raises(StudyFileError, match="the other axes have 9,000,000 cells"):
        read_study(path)


def test_the_size_of_a_grid_is_the_number_of_its_cells(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        'title = "T"\nmodels = ["a", "b"]\nbatches = [1, 2, 3]\nmodes = ["train"]\nsources = ["estimate", "measure"]\n'
        'devices = ["t4", "l4"]\n[options]\noptimizer = ["sgd", "adam"]\n[measure]\ndevices = "cpu"\n'
    )
    file = read_study(path)
    # 2 models x 3 batches x 2 optimizers, estimated on 2 devices and measured on 1.
    assert file.study.grids[0].size == len(cells(file.study, tmp_path)) == 2 * 3 * 2 * (2 + 1)


def test_dtypes_have_the_names_of_torch_too(tmp_path: Path) -> None:
    text = SMALL + 'dtypes = ["torch.bfloat16", "half"]\n[[exclude]]\ndtype = "float16"\nbatch = 4\n'
    study = read_study(written(tmp_path, text)).study
    assert study.grids[0].dtypes == ("bf16", "fp16")
    named = {(cell.case.dtype, cell.case.batch) for cell in cells(study, tmp_path)}
    assert named == {("bf16", 1), ("bf16", 2), ("bf16", 4), ("fp16", 1), ("fp16", 2)}
