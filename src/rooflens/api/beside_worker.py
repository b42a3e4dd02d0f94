"""The process in which a user's file is estimated: ``python -m rooflens.api.beside_worker``, see the module beside."""

from rooflens.api.beside import begin
from rooflens.sources import isolation

if __name__ == "__main__":
    isolation.serve(begin)
