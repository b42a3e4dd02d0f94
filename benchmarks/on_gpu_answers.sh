#!/bin/sh
# Language models on a card, the most telling first: the counters of a whole answer (60 s), then what the H200's file lacks or
# measured with a cut cache (SECONDS of it, 120 unless told): 8B with other caches, growing caches. Or a compiled answer
# (90 s), or a small model on a processor.
#     sh benchmarks/on_gpu_answers.sh OUT [SECONDS | compiled | tiny CONFIG]
set -u
out=$1
export PYTHONPATH=".:src:${PYTHONPATH:-}"
unset PYTHONDONTWRITEBYTECODE
results=$out/decoders-h200.ndjson
count() {
    timeout -k 10 60 python3 -m rooflens counters "$@" --limit 50 -o "$out/counted-answer.jsonl" 2>&1 | tail -60
}
measure() {
    python3 benchmarks/measured_decoders.py measure "$results" "$@" 2>&1 | tail -60
}
case ${2:-120} in
tiny)
    count "$3" --dtype bf16 -b 2 --prompt-len 16 --output-len 4
    measure --where cpu --tiny "$3" --seconds 60
    ;;
compiled)
    cp -n benchmarks/results/decoders-h200.ndjson "$results"
    measure --seconds 80 --only compile
    ;;
*)
    cp -n benchmarks/results/decoders-h200.ndjson "$results"
    count llama-3.2-1b --dtype bf16 -b 8 --prompt-len 512 --output-len 64
    measure --seconds "${2:-120}" --without compile
    ;;
esac
