"""How long `import rooflens` takes, by the interpreter's own clock: python benchmarks/import_time.py"""

from __future__ import annotations

import subprocess
import sys
from statistics import median


def milliseconds() -> float:
    """Return the time of one import in a new interpreter, everything that it loads included."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import rooflens"], capture_output=True, text=True, check=True
    )
    (line,) = (line for line in done.stderr.splitlines() if line.endswith("| rooflens"))
    return int(line.split("|")[1]) / 1000


if __name__ == "__main__":
    times = [milliseconds() for _ in range(9)]
    print(f"import rooflens: {median(times):.1f} ms, best {min(times):.1f} ms of {len(times)}")
