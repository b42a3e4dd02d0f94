"""The worker of :mod:`rooflens.capacity.worker`."""

from rooflens.capacity.worker import Search, begin
from rooflens.running.isolation import serve
from rooflens.without_compiler import compiler_on_demand

if __name__ == "__main__":
    compiler_on_demand()
    serve(begin, job=Search)
