#!/usr/bin/env python3
"""Does a bias keep the experts busy alike, and the loss as low? The mixture of examples/moe_kjv.toml on the King James
Bible, without a balance loss.

    python bench/experts/balance.py [--build build/release] [--data data/kjv] [--steps 300] [--ranks 2]
        [--bias 0.002] [--keep DIR] [--record expert_balance]

Two runs of `herd train` with the same seed, one with model.bias_balancing and one without. Prints of each the imbalance
(tokens of the busiest expert over those of the mean one, in the least balanced layer) and the loss, both as means of
the last tenth of the steps. The exit status is 1 where the imbalance without a bias ends at 2 or below, that with one
at 1.3 or above, or the losses are more than a percent apart. The tokens are those that scripts/train makes.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
import page  # noqa: E402
import tables  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--data", default="data/kjv")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--bias", type=float, default=0.002)
parser.add_argument("--keys", nargs="*", default=[], help="keys of both runs, such as model.router=sigmoid")
parser.add_argument("--keep", help="a folder for what the runs write")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
args = parser.parse_args()
scratch = args.keep or tempfile.mkdtemp(prefix="herd-bench-")


def run(bias):
    name = f"bias_{bias}"
    command = [f"{args.build}/herd", "train", str(here.parents[1] / "examples/moe_kjv.toml"), "--ranks", str(args.ranks),
               f"data.path={pathlib.Path(args.data).resolve()}", f"train.steps={args.steps}", "train.eval_every=0",
               "train.threads=1", "checkpoint.every=-1", f"log.dir={scratch}", f"log.name={name}",
               "model.balance_loss=0", f"model.bias_balancing={bias}", *args.keys]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
    with open(pathlib.Path(scratch) / name / "metrics.jsonl") as lines:
        steps = [row for row in map(json.loads, lines) if "step_ms" in row]
    last = steps[-max(1, args.steps // 10):]
    return {"bias": bias, "steps": args.steps, "ranks": args.ranks,
            "imbalance": statistics.mean(row["expert_imbalance"] for row in last),
            "loss": statistics.mean(row["loss"] for row in last)}


samples = []
for bias in (0, args.bias):
    samples.append(run(bias))
    print(json.dumps(samples[-1]), file=sys.stderr)
print(tables.markdown(*tables.expert_balance(samples)))
if args.record:
    page.record(args.record, "expert_balance", samples)
without, balanced = samples
holds = (without["imbalance"] > 2 and balanced["imbalance"] < 1.3
         and abs(balanced["loss"] / without["loss"] - 1) <= 0.01)
sys.exit(0 if holds else 1)
