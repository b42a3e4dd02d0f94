"""Studies: a file that asks a question, the grid of cells that it spans, and the folder that holds the answers.

How a cell is run is handed in: this package knows no source. :mod:`rooflens.running.studies` puts the two together.
"""

from rooflens.study.cell_runs import CellNews, CellRunner, Tell, could_not, run_each
from rooflens.study.claims import judge
from rooflens.study.folder import STATES, Status, StudyChange, StudyFolder
from rooflens.study.grid import cells, excluded, stated
from rooflens.study.results import StudyContents
from rooflens.study.study import (
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
from rooflens.study.study_file import canonical, device_notes, read_study
from rooflens.study.verdict import Pair, Verdict
