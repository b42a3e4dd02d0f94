"""A sample of timm's families: every operation of forward and backward has a formula, and the recorded counts hold.

`benchmarks/timm_models.py` counts six models of every module of timm; its results are in the repository.
"""

from __future__ import annotations

import functools
import json

import pytest
import timm
from benchmarks import timm_models

SAMPLE = (
    "convmixer_1024_20_ks9_p14",
    "deit_small_distilled_patch16_224",
    "dla34",
    "lcnet_100",
    "naflexvit_base_patch16_gap",
    "poolformer_s12",
    "pit_s_224",
    "regnetx_016",
    "resmlp_12_224",
    "skresnet18",
    "starnet_s050",
    "test_byobnet",
    "test_convnext3",
    "test_mambaout",
    "vgg13",
)
RECORDED = timm_models.read()
counted = functools.cache(timm_models.counted)
OF_THIS_TIMM = pytest.mark.skipif(
    json.loads(timm_models.RESULTS.read_text())["versions"]["timm"] != timm.__version__,
    reason="the results were recorded with another version of timm",
)


def test_three_hundred_models_of_every_module_are_recorded() -> None:
    assert len(RECORDED) >= 300
    assert len({row["module"] for row in RECORDED.values()}) >= 90
    assert [name for name, row in RECORDED.items() if timm_models.wrong(row)] == []
    assert {name for name, row in RECORDED.items() if timm_models.incomplete(row)} == timm_models.REASONS.keys()


@OF_THIS_TIMM
def test_the_record_holds_what_the_rule_chooses() -> None:
    assert timm_models.chosen() == {name: row["module"] for name, row in RECORDED.items()}


@pytest.mark.parametrize("name", SAMPLE)
def test_every_operation_is_counted(name: str) -> None:
    found = counted(name)
    assert found["uncounted"] == []
    # Forward twice, less the gradient of the image.
    assert 1.7 < found["backward"] / found["forward"] < 2


@OF_THIS_TIMM
@pytest.mark.parametrize("name", SAMPLE[::3])
def test_the_recorded_counts_hold(name: str) -> None:
    found = counted(name)
    assert {key: found[key] for key in ("forward", "backward")} == {
        key: RECORDED[name][key] for key in ("forward", "backward")
    }
