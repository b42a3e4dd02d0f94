#!/bin/sh
# Language models on a card: what the H200's file lacks and the counters of a whole answer (150 s), or a compiled answer (90 s).
#     sh benchmarks/on_gpu_answers.sh OUT [compiled]
set -u
out=$1
export PYTHONPATH=".:src:${PYTHONPATH:-}"
cp -n benchmarks/results/decoders-h200.ndjson "$out/decoders-h200.ndjson"
measure() {
    python3 benchmarks/measured_decoders.py measure "$out/decoders-h200.ndjson" "$@" 2>&1 | tail -60
}
if [ "${2:-}" = compiled ]; then
    measure --seconds 80 --only compile
    exit
fi
measure --seconds 90
timeout -k 10 60 python3 -m rooflens counters llama-3.2-1b --dtype bf16 -b 8 --prompt-len 512 --output-len 64 \
    --limit 50 -o "$out/counted-answer.jsonl" 2>&1 | tail -60
