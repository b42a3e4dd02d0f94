#!/bin/sh
# What `rooflens measure` prints on a card, in every way in which a step is run: sh benchmarks/on_gpu_cases.sh OUT
# Each case prints its table; records go to OUT/cases.jsonl (one file per case, joined by name).
set -u
out=$1
run() {
    name=$1
    shift
    echo "== rooflens measure $*"
    timeout 120 python3 -m rooflens measure "$@" --device cuda -o "$out/$name.jsonl" || echo "== failed: $?"
}
run train resnet50 -b 64 --mode train --dtype amp-bf16 --profile --budget 1
run graph vit_b_16 -b 1 --dtype bf16 --cuda-graph --flush --budget 1 --depth 0
run eager vit_b_16 -b 1 --dtype bf16 --flush --budget 1 --depth 0
run compiled resnet18 -b 256 --dtype amp-bf16 --mode train --compile --channels-last --budget 1 --depth 0
run graphed resnet18 -b 16 --dtype bf16 --mode train --optimizer adamw --cuda-graph --budget 1 --depth 0
run fused resnet18 -b 16 --dtype fp32 --mode train --optimizer adamw --fused --budget 1 --depth 0
run largest resnet18 -b 16384 --dtype bf16 --largest-batch --budget 0.2 --depth 0
run decode hf:gpt2 -b 4 --seq-len 512 --mode decode --dtype bf16 --cuda-graph --budget 1 --depth 0
