#!/usr/bin/env python3
"""What do layer_major and direct host access save, where weights wait on the host behind a slow link?

    python bench/memory_tiers/weights_on_host.py [--build build/release] [--rounds 2] [--steps 3] [--link 0.4GB/s]
        [--micro-batches 4] [--only "NAME;NAME"] [--record weights_on_host]

Trains the GPT of 162 M parameters on one rank with strategy.offload = "window" and a link that takes longer for the
weights of both passes than one micro-batch computes. Contenders take turns, each once a round: each micro-batch by
itself, all of them through a layer before the next, and each of both with blocks that herd chooses to read on the host.
The table has the median step after the first, what was predicted before it, the ratio of both, and how many times as
fast as the first contender the step is. Nothing waits for a norm (clip and check_finite off). With --record the samples
are kept as bench/recorded/NAME.jsonl, and the table is written into docs/guide/benchmarks.md.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(here))
import page  # noqa: E402
import tables  # noqa: E402
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--link", default="0.4GB/s")
parser.add_argument("--micro-batches", type=int, default=4)
parser.add_argument("--only", default="", help="contenders, with semicolons between; default: all")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
args = parser.parse_args()

contenders = {
    "micro_batch_major": [],
    "layer_major": ["strategy.order=layer_major"],
    "micro_batch_major, direct": ["strategy.direct_host=auto"],
    "layer_major, direct": ["strategy.order=layer_major", "strategy.direct_host=auto"],
}
if args.only:
    contenders = {name: contenders[name] for name in args.only.split(";")}


def run(overrides):
    """(predicted ms, ms of each step after the first)"""
    with tempfile.TemporaryDirectory(prefix="herd_weights_on_host.") as folder:
        command = [f"{args.build}/herd", "train", f"{here}/../../share/herd/models/gpt-162m.toml", "--ranks", "1",
                   "train.micro_batch=1", f"train.batch={args.micro_batches}", f"train.steps={args.steps}",
                   "train.eval_every=0", "train.threads=1", "checkpoint.every=-1", "checkpoint.resume=none",
                   "optimizer.clip=0", "health.check_finite=false", "strategy.offload=window", "strategy.window=2",
                   f"memory.link={args.link}", f"log.dir={folder}", "log.name=run", *overrides]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
        with open(f"{folder}/run/metrics.jsonl") as lines:
            steps = [row for row in map(json.loads, lines) if "step_ms" in row]
    return steps[-1]["predicted_step_ms"], [row["step_ms"] for row in steps[1:]]


predicted, measured = {name: [] for name in contenders}, {name: [] for name in contenders}
for _ in range(args.rounds):
    for name, overrides in contenders.items():
        guess, steps = run(overrides)
        predicted[name].append(guess)
        measured[name] += steps
        print(f"{name}: {', '.join(f'{ms:.0f}' for ms in steps)} ms, predicted {guess:.0f}", file=sys.stderr)
samples = [{"contender": name, "ms": measured[name], "predicted_ms": predicted[name]} for name in contenders]
if args.record:
    page.record(args.record, "weights_on_host", samples)
print(tables.markdown(*tables.weights_on_host(samples)))
