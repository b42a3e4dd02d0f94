#!/bin/sh
# What docs/counters.md and docs/calibrate.md state, from a card: sh benchmarks/on_gpu_counters.sh OUT [SECONDS]
# One case after the other, each with its own time limit; records go to OUT, reports and traces to OUT/keep.
# Afterwards: PYTHONPATH=. python benchmarks/counted.py --out benchmarks/results/counted-CARD.json OUT/*.jsonl
set -u
export PYTHONPATH=".:src:${PYTHONPATH:-}"
out=$1
limit=${2:-600}
mkdir -p "$out/keep"
count() {
    name=$1
    shift
    begun=$(date +%s)
    echo "== rooflens counters $*"
    timeout -k 60 $((limit + 120)) python3 -m rooflens counters --limit "$limit" --keep "$out/keep/$name" \
        -o "$out/$name.jsonl" "$@" > "$out/$name.txt" 2>&1 || echo "== failed: $?"
    echo "== $(($(date +%s) - begun)) s"
}
decoder=$out/keep/decoder-1b.json
python3 -c 'import json; from benchmarks.memory import DECODER; print(json.dumps(DECODER))' > "$decoder"
count vit-train vit_b_16 -b 16 --dtype bf16 --mode train
count decoder-train "hf:$decoder" -b 1 --seq-len 512 --dtype bf16 --mode train
count resnet50 resnet50 -b 16 --dtype bf16
for model in resnet18 mobilenet_v3_large; do
    count $model $model -b 16 --dtype bf16
    count $model-train $model -b 16 --dtype bf16 --mode train
done
count resnet50-train resnet50 -b 16 --dtype bf16 --mode train
count vit vit_b_16 -b 16 --dtype bf16
count decoder "hf:$decoder" -b 1 --seq-len 512 --dtype bf16
count products -- python3 benchmarks/counted_products.py
count products-warm --cache none -- python3 benchmarks/counted_products.py
count region -- python3 examples/imagenet_region.py
