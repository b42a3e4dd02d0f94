"""The worker of :mod:`rooflens.capacity.worker`."""

from rooflens.capacity.worker import Search, begin
from rooflens.running.isolation import serve

if __name__ == "__main__":
    serve(begin, job=Search)
