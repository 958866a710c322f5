#!/usr/bin/env python3
"""What does running ahead cost in loss, and gain in time? The GPT of examples/gpt_kjv.toml, made smaller, with 4 ranks.

    python bench/param_server/staleness.py [--build build/release] [--data data/kjv] [--steps 200] [--ranks 4]
        [--staleness "0 1 2 3 4 8 -1"] [--slow "random always"] [--factor 3] [--pace-ms 100] [--seed 1] [--record staleness]
        [key=value ...]

Each run is examples/stragglers, whose ranks sleep --pace-ms in each step, and --factor times as long where they are
slow: one drawn for each step (random), or the last one in all (always). The first staleness of each kind is what the
others are compared with: its loss is the mean over the last tenth of its tokens, and its time that of all of its steps.
The others are ended as soon as the mean over as many tokens is as low, and that is their time; those that never get
there run to their end. Their loss is that after as many tokens as the first has trained on. -1 is no bound.
The exit status is 1 where a staleness was exceeded. With --record the samples are kept as bench/recorded/NAME.jsonl,
and the table is written into docs/guide/benchmarks.md.
"""
import argparse
import json
import pathlib
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
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--ranks", type=int, default=4)
parser.add_argument("--staleness", default="0 1 2 3 4 8 -1")
parser.add_argument("--slow", default="random always")
parser.add_argument("--factor", type=float, default=3)
parser.add_argument("--pace-ms", type=float, default=100)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
parser.add_argument("keys", nargs="*", help="further keys of the run file")
args = parser.parse_args()
SMALL = ("model.layers=2 model.width=64 model.heads=4 model.context=32 train.batch=8 train.micro_batch=2 "
         "optimizer.schedule=constant optimizer.warmup_steps=20 optimizer.clip=0").split()


def mean_of_last(rows, tokens):
    """The mean loss over the last so many tokens; None where there are fewer."""
    total = count = 0
    for row in reversed(rows):
        total += row["loss"] * row["tokens"]
        count += row["tokens"]
        if count >= tokens:
            return total / count
    return None


def run(slow, staleness, target):
    """The steps of rank 0, up to the one that reaches the target's loss after as many tokens at least as half of it."""
    steps = args.steps if target is None else args.steps * 3 // 2  # ranks that are fast do more than their share
    with tempfile.TemporaryDirectory(prefix="herd-bench-") as scratch:
        command = [f"{args.build}/herd", "run", "-n", str(args.ranks), "--", f"{args.build}/examples/stragglers",
                   str(here.parents[1] / "examples/gpt_kjv.toml"), "--slow", slow, "--factor", str(args.factor),
                   "--pace-ms", str(args.pace_ms), "--seed", str(args.seed), *SMALL,
                   f"data.path={pathlib.Path(args.data).resolve()}", f"train.steps={steps}", "train.eval_every=0",
                   "train.threads=1", "checkpoint.every=-1", f"log.dir={scratch}", "log.name=run", "log.trace_steps=0",
                   "health.replica_hash_every=0",  # where replicas are compared, all would meet
                   "strategy.sync=server_async", f"strategy.staleness={staleness}", *args.keys]
        with open(pathlib.Path(scratch) / "errors", "w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            rows, reached_s = [], None
            for line in process.stdout:
                line = line[line.find("{"):] if "{" in line else ""  # the launcher names the rank before it
                if not line.startswith("{"):
                    continue
                rows.append(json.loads(line))
                done = sum(row["tokens"] for row in rows)
                if target is None:
                    continue
                mean = mean_of_last(rows, target["window"])
                if reached_s is None and mean is not None and mean <= target["loss"]:
                    reached_s = rows[-1]["s"]
                if reached_s is not None and done >= target["tokens"]:
                    process.terminate()
                    break
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            if not rows:
                errors.seek(0)
                sys.exit(" ".join(command) + "\n" + errors.read())
    return rows, reached_s


samples, exceeded = [], False
for slow in args.slow.split():
    target = None
    for staleness in map(int, args.staleness.split()):
        rows, reached_s = run(slow, staleness, target)
        if target is None:
            tokens = sum(row["tokens"] for row in rows)
            target = {"tokens": tokens, "window": tokens // 10, "loss": mean_of_last(rows, tokens // 10)}
            reached_s = rows[-1]["s"]
        until = [row for index, row in enumerate(rows)
                 if sum(each["tokens"] for each in rows[:index + 1]) <= target["tokens"]]
        most = max(row["staleness"] for row in rows)
        exceeded = exceeded or 0 <= staleness < most
        samples.append({"slow": slow, "factor": args.factor, "ranks": args.ranks, "pace_ms": args.pace_ms,
                        "seed": args.seed, "steps": args.steps, "staleness": staleness, "most_stale": most,
                        "loss": mean_of_last(until, target["window"]), "reached_s": reached_s})
        print(json.dumps(samples[-1]), file=sys.stderr)
print(tables.markdown(*tables.staleness(samples)))
if args.record:
    page.record(args.record, "staleness", samples)
sys.exit(1 if exceeded else 0)
