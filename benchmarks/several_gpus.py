"""Measure data parallel training on several GPUs of one machine: scaling efficiency and bus bandwidth.

    python benchmarks/several_gpus.py --out benchmarks/results/several-gpus-2xh100.jsonl --gpus 2
    python benchmarks/several_gpus.py --out out/several.jsonl --gpus 2 --cpu    # to try it out

ResNet-50 at two batch sizes and a decoder of a billion parameters, each GPU with a whole batch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.memory import DECODER

import rooflens as rl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    where = "cpu" if options.cpu else "cuda"
    records = rl.RecordSet(())
    if options.cpu:
        records += rl.measure("resnet18", batch=[1, 2], img_size=64, mode="train", gpus=options.gpus, device=where)
    else:
        decoder = options.out.parent / "decoder-1b.json"
        decoder.write_text(json.dumps(DECODER))
        records += rl.measure(
            "resnet50", batch=[64, 256], dtype="amp-bf16", channels_last=True, mode="train", gpus=options.gpus
        )
        records += rl.measure(
            f"hf:{decoder}", batch=4, seq_len=1024, dtype="bf16", mode="train", gpus=options.gpus, budget=5.0
        )
        decoder.unlink()
    records.save(options.out)
    print(rl.table(records))


if __name__ == "__main__":
    main()
