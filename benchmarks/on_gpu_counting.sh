#!/bin/sh
# What only a card can tell of counting, in one call: sh benchmarks/on_gpu_counting.sh OUT [SECONDS] [PART]...
# The most telling part comes first; without names all run, as far as SECONDS (570) suffice. Each has its own limit. After
# each, OUT/counting.tgz has records and texts, and OUT/said.txt a line for each counted step; what matters is printed.
# counted_once.py and counted_again.py compare the records afterwards, without a card.
set -u
unset PYTHONDONTWRITEBYTECODE # an installation by pip has compiled files
export PYTHONPATH=".:src:${PYTHONPATH:-}" PYTHONPYCACHEPREFIX="${PYTHONPYCACHEPREFIX:-${TMPDIR:-/tmp}/rooflens-compiled}"
out=$1
until=$(($(date +%s) + ${2:-570}))
shift
[ $# = 0 ] || shift
parts="$*"
made=$(mktemp -d)
keep=$made/keep
mkdir -p "$out" "$keep"
said='[0-9]* launches were counted for [0-9]*\|every launch was counted[^;]*\|[0-9]* passes per kernel\|partial: [^;]*'
said="$said"'\|NOT COUNTED: [^,]*\|the counted launches stand for [0-9.]* *%\|times may be too long\|bytes may be too many'

# part NAME EXPECTED LIMIT COMMAND...: seconds; $made/NAME.txt and .err have what it prints
part() {
    name=$1 expected=$2 limit=$3
    shift 3
    case " $parts " in *" $name "* | "  ") ;; *) return 1 ;; esac
    left=$((until - $(date +%s)))
    if [ "$left" -lt "$expected" ]; then
        echo "== $name: left out, it takes $expected s and $left are left"
        return 1
    fi
    [ "$limit" -lt "$left" ] || limit=$left
    begun=$(date +%s.%N)
    timeout -k 10 "$limit" "$@" > "$made/$name.txt" 2> "$made/$name.err" || { echo "== $name failed: $?"; tail -25 "$made/$name.err"; }
    took=$(python3 -c "import time; print(round(time.time() - $begun, 1))")
    echo "== $name: $took s"
}
pack() {
    cp "$made/said.txt" "$out/" 2> /dev/null
    tar -czf "$out/counting.tgz" --exclude keep -C "$made" .
}
count() {
    name=$1 expected=$2 limit=$3
    shift 3
    # Counting ends 30 s before the part, so that what was counted is kept.
    part "$name" "$expected" "$limit" python3 benchmarks/counted_timeline.py counters --limit $((limit - 30)) \
        --keep "$keep/$name" -o "$made/$name.jsonl" "$@" || return
    size=$(cat "$keep/$name"/*.ncu-rep 2> /dev/null | wc -c)
    notes=$(tr '\n' ' ' < "$made/$name.txt" | tr -s ' ' | grep -o "$said" | sort -u | tr '\n' ';')
    echo "$name: $took s, report $size bytes; $notes" | tee -a "$made/said.txt"
    grep "^ *[0-9.]* s to\|^run [0-9]" "$made/$name.err"
    pack
}
programs() {
    of=$1
    part "$of" "$2" "$3" python3 benchmarks/counted_programs.py "$made/$of" --only "$of" || return
    cat "$made/$of.txt"
    pack
}
# Libraries are compiled, and lie in the system's cache of files.
timeout -k 10 60 python3 -c "
import json, sys, torch, torchvision, transformers
import rooflens.api.counting, rooflens.api.showing, rooflens.running.profiling
from benchmarks.memory import DECODER
for name, layers in (('1b', 16), ('short', 3)):
    with open(f'{sys.argv[1]}/decoder-{name}.json', 'w') as file:
        json.dump(DECODER | {'num_hidden_layers': layers}, file)
torch.nn.Conv2d(3, 8, 3).cuda()(torch.ones(1, 3, 8, 8, device='cuda')).sum().backward()" "$keep" || echo "== nothing is warm"
count resnet18 35 70 resnet18 -b 32 --dtype amp-bf16 --mode train
programs region 30 60
count vit 30 70 vit_b_16 -b 16 --dtype bf16 --mode train
count decoder 60 120 "hf:$keep/decoder-1b.json" -b 1 --seq-len 512 --dtype bf16 --mode train
programs "cut model" 25 50
programs "cut program" 25 50
count resnet18-every 65 110 resnet18 -b 32 --dtype amp-bf16 --mode train --every
count own-resnet18 20 50 resnet18 -b 32 --dtype tf32
count own-alexnet 20 50 alexnet -b 1 --dtype fp32 --mode train --optimizer none
count vit-every 75 120 vit_b_16 -b 16 --dtype bf16 --mode train --every
count decoder-short 30 70 "hf:$keep/decoder-short.json" -b 1 --seq-len 512 --dtype bf16 --mode train
count decoder-short-every 75 120 "hf:$keep/decoder-short.json" -b 1 --seq-len 512 --dtype bf16 --mode train --every
part launch 30 60 python3 benchmarks/ncu_probe.py "$made/launch" 40 --sets --together --only "plain and hgmma" \
    --only "plain, 8 GiB more" --only "hgmma, no cycles" --only "both, no pipe" &&
    { cat "$made/launch.txt" && rm -f "$made"/launch/*.ncu-rep && pack; }
part measure 35 60 python3 benchmarks/measure_wall.py "$made/measure-wall.json" --runs 2 &&
    { cat "$made/measure.txt" && pack; }
