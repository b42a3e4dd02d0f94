#!/bin/sh
# Distinct launches counted once, as docs/counters.md tells: sh benchmarks/on_gpu_counted_once.sh OUT [CASE]...
# Without a case all run, the most wanted first. OUT/counted-once.tgz has records and texts; what matters is printed.
set -u
export PYTHONPATH=".:src:${PYTHONPATH:-}"
out=$1
shift
cases="$*"
made=$(mktemp -d)
keep=$made/keep
mkdir -p "$out" "$keep"
said='[0-9]* launches were counted for [0-9]*\|every launch was counted[^;]*\|[0-9]* passes per kernel\|partial: [^;]*'
said="$said"'\|the counted launches stand for [0-9.]* *%'
count() {
    name=$1
    shift
    case " $cases " in *" $name "* | "  ") ;; *) return ;; esac
    begun=$(date +%s.%N)
    timeout -k 20 "${LIMIT:-150}" python3 benchmarks/counted_timeline.py counters --limit 120 --keep "$keep/$name" \
        -o "$made/$name.jsonl" "$@" \
        > "$made/$name.txt" 2> "$made/$name.err" || { echo "== $name failed: $?"; tail -25 "$made/$name.err"; }
    took=$(python3 -c "import time; print(round(time.time() - $begun, 1))")
    size=$(cat "$keep/$name"/*.ncu-rep 2> /dev/null | wc -c)
    notes=$(tr '\n' ' ' < "$made/$name.txt" | tr -s ' ' | grep -o "$said" | tr '\n' ';')
    echo "$name: $took s, report $size bytes; $notes" | tee -a "$made/said.txt"
    grep "^ *[0-9.]* s to" "$made/$name.err"
    tar -czf "$out/counted-once.tgz" --exclude keep -C "$made" .
}
decoder() {
    python3 -c "
import json
from benchmarks.memory import DECODER
print(json.dumps(DECODER | {'num_hidden_layers': $1}))"
}
decoder 16 > "$keep/decoder-1b.json"
decoder 3 > "$keep/decoder-short.json"
count resnet18 resnet18 -b 32 --dtype amp-bf16 --mode train
count vit vit_b_16 -b 16 --dtype bf16 --mode train
count decoder "hf:$keep/decoder-1b.json" -b 1 --seq-len 512 --dtype bf16 --mode train
count decoder-short "hf:$keep/decoder-short.json" -b 1 --seq-len 512 --dtype bf16 --mode train
count own-resnet18 resnet18 -b 32 --dtype tf32
count own-alexnet alexnet -b 1 --dtype fp32 --mode train --optimizer none
count resnet18-b16 resnet18 -b 16 --dtype bf16 --mode train
count resnet18-every resnet18 -b 32 --dtype amp-bf16 --mode train --every
count decoder-short-every "hf:$keep/decoder-short.json" -b 1 --seq-len 512 --dtype bf16 --mode train --every
count vit-every vit_b_16 -b 16 --dtype bf16 --mode train --every
python3 benchmarks/counted_once.py "$made"
