#!/usr/bin/env python3
"""Does a rank hold what was predicted? A GPT of 162 M parameters, a few steps of every ZeRO stage and recompute mode.

    python bench/memory_table/memory_table.py [--build build/release] [--ranks 2,4] [--steps 3] [--precision fp32]
        [--recompute none,full,sqrt] [--zero 0,1,2,3] [--batch 2] [--record memory_table] [--add]

Each run is `herd train` with --batch sequences a rank in one micro-batch, one thread a rank. Predicted and measured peaks
of rank 0's device come from its metrics.jsonl, the largest of all steps; times are the median of the steps after the
first. The table goes to standard output; the exit status is 1 where a peak is more than 3 % off its prediction. With
--record the samples, one object a run, are kept as bench/recorded/NAME.jsonl, and the table is written into
docs/guide/benchmarks.md; with --add those that it holds count, too, so that a long table can be made in short sittings.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(here))
import page  # noqa: E402
import tables  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--ranks", default="2,4")
parser.add_argument("--zero", default="0,1,2,3")
parser.add_argument("--recompute", default="none,full,sqrt")
parser.add_argument("--precision", default="fp32")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
parser.add_argument("--add", action="store_true", help="to the samples that are kept")
args = parser.parse_args()
MODEL = f"{here}/../../share/herd/models/gpt-162m.toml"


def run(ranks, zero, recompute, folder):
    command = [f"{args.build}/herd", "train", MODEL, "--ranks", str(ranks), f"train.batch={ranks * args.batch}",
               f"train.micro_batch={args.batch}", f"train.steps={args.steps}", "train.eval_every=0", "train.threads=1",
               "checkpoint.every=-1", "checkpoint.resume=none", f"log.dir={folder}", "log.name=run",
               f"strategy.zero={zero}", f"strategy.recompute={recompute}", f"strategy.precision={args.precision}"]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
    with open(f"{folder}/run/metrics.jsonl") as lines:
        steps = [row for row in map(json.loads, lines) if "step_ms" in row]
    return {"ranks": ranks, "zero": zero, "recompute": recompute, "precision": args.precision, "batch": args.batch,
            "predicted_bytes": max(row["predicted_device_bytes_peak"] for row in steps),
            "measured_bytes": max(row["device_bytes_peak"] for row in steps),
            "predicted_ms": steps[-1]["predicted_step_ms"],
            "measured_ms": statistics.median(row["step_ms"] for row in steps[1:])}


rows = page.recorded(args.record) if args.add else []
done = {(row["ranks"], row["zero"], row["recompute"], row["precision"], row["batch"]) for row in rows}
for ranks in map(int, args.ranks.split(",")):
    for zero in map(int, args.zero.split(",")):
        for recompute in args.recompute.split(","):
            if (ranks, zero, recompute, args.precision, args.batch) in done:
                continue
            with tempfile.TemporaryDirectory(prefix="herd_memory_table.") as folder:
                rows.append(run(ranks, zero, recompute, folder))
            if args.record:
                page.record(args.record, "memory_table", rows)
print(tables.markdown(*tables.memory_table(rows)))
sys.exit(1 if any(abs(row["measured_bytes"] / row["predicted_bytes"] - 1) > 0.03 for row in rows) else 0)
