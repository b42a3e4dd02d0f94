"""The process in which cells are estimated: ``python -m rooflens.api.study_worker``, started by a study's run."""

from rooflens.api.cells import begin
from rooflens.sources import isolation

if __name__ == "__main__":
    isolation.serve(begin)
