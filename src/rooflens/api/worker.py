"""The process in which cells are measured: ``python -m rooflens.api.worker``, started by :func:`rooflens.measure`."""

from rooflens.api.cell import begin
from rooflens.sources import isolation

if __name__ == "__main__":
    isolation.serve(begin)
