#!/bin/sh
# Everything that expected times wait for, on one GPU, in about 260 s: sh benchmarks/prediction_on_gpu.sh OUT
set -u
export PYTHONPATH=.:src:${PYTHONPATH:-}
mkdir -p "$1"
python3 benchmarks/prediction/on_gpu.py "$1/suite" --seconds 25 --suite-from 1175 > "$1/suite.txt" 2>&1
timeout 75 python3 benchmarks/prediction/truth_on_gpu.py "$1/truth" --seconds 60 --parts decoders > "$1/truth.txt" 2>&1
timeout 110 python3 benchmarks/prediction/on_gpu.py "$1/judged" --seconds 90 --judged > "$1/judged.txt" 2>&1
gzip -f "$1/judged/replayed.jsonl"
timeout 75 python3 benchmarks/prediction/power_on_gpu.py "$1/power" --seconds 60 > "$1/power.txt" 2>&1
tail -3 "$1"/*.txt
