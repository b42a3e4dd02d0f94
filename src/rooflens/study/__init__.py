"""Studies: a file that asks a question, the grid of cells that it spans, and the folder that holds the answers.

How a cell is run is handed in: this package knows no source. :mod:`rooflens.api.studies` puts the two together.
"""

from rooflens.study.claims import Pair, Verdict, judge
from rooflens.study.file import StudyFile, canonical, read_study
from rooflens.study.grid import cells, excluded, stated
from rooflens.study.state import Change, State, Status, StudyFolder
from rooflens.study.study import (
    HERE,
    OPTIONS,
    SOURCES,
    Cell,
    Claim,
    Cluster,
    Exclusion,
    Grid,
    Hypothesis,
    Recorded,
    Settings,
    Side,
    SourceName,
    Study,
)
from rooflens.study.work import Run, Share, Step, Tell, could_not, work

__all__ = [
    "HERE",
    "OPTIONS",
    "SOURCES",
    "Cell",
    "Change",
    "Claim",
    "Cluster",
    "Exclusion",
    "Grid",
    "Hypothesis",
    "Pair",
    "Recorded",
    "Run",
    "Settings",
    "Share",
    "Side",
    "SourceName",
    "State",
    "Status",
    "Step",
    "Study",
    "StudyFile",
    "StudyFolder",
    "Tell",
    "Verdict",
    "canonical",
    "cells",
    "could_not",
    "excluded",
    "judge",
    "read_study",
    "stated",
    "work",
]
