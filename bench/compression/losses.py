#!/usr/bin/env python3
"""Does a run whose gradients are compressed learn as much? The GPT of examples/gpt_kjv.toml on the King James Bible.

    python bench/compression/losses.py [--build build/release] [--data data/kjv] [--steps 400] [--ranks 2]
        [--codecs "compression=none;compression=topk optimizer.freeze_step=80"] [--within 3] [--keep DIR] [--record compression_losses]

Each codec is one run of `herd train`, with these overrides: keys of [strategy], or of another section with its name.
Prints of each: how many bytes of fp32 stand for one of what a rank encodes, what encoding lost of the last step's
gradients, the mean loss of the last tenth of the steps and that beside the first codec's, and the loss of the
validation. The exit status is 1 where a loss is more than --within percent above the first one's. The tokens are those
that scripts/train makes. With --record the samples are kept as bench/recorded/NAME.jsonl, and the table is written into
docs/guide/benchmarks.md.
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

CODECS = ("compression=none;compression=bf16;compression=int8;compression=int8 compression_levels=quantiles;"
          "compression=int4;compression=int4 compression_levels=quantiles;compression=topk;"
          "compression=topk compression_ratio=0.1")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--data", default="data/kjv")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--codecs", default=CODECS, help="of each its keys, with spaces, separated by ;")
parser.add_argument("--within", type=float, default=3, help="percent that a loss may be above the first one")
parser.add_argument("--keep", help="a folder for what the runs write")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
args = parser.parse_args()
scratch = args.keep or tempfile.mkdtemp(prefix="herd-bench-")


def run(name, codec):
    command = [f"{args.build}/herd", "train", str(here.parents[1] / "examples/gpt_kjv.toml"), "--ranks", str(args.ranks),
               f"data.path={pathlib.Path(args.data).resolve()}", f"train.steps={args.steps}",
               f"train.eval_every={args.steps}", "train.threads=1", "checkpoint.every=-1", f"log.dir={scratch}",
               f"log.name={name}", *(key if "." in key.split("=")[0] else f"strategy.{key}" for key in codec.split())]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
    with open(pathlib.Path(scratch) / name / "metrics.jsonl") as lines:
        steps = [row for row in map(json.loads, lines) if "step_ms" in row]
    last = steps[-1]
    return {"codec": codec, "steps": args.steps, "ranks": args.ranks, "ratio": last.get("compression_ratio"),
            "error": last.get("compression_error"), "val_loss": last["val_loss"],
            "loss": statistics.mean(row["loss"] for row in steps[-max(1, args.steps // 10):]),
            "bytes_sent": last["bytes_sent"]}


samples = []
for index, codec in enumerate(args.codecs.split(";")):
    samples.append(run(f"codec{index}", codec))
    print(json.dumps(samples[-1]), file=sys.stderr)
print(tables.markdown(*tables.compression_losses(samples)))
if args.record:
    page.record(args.record, "compression_losses", samples)
worst = max(sample["loss"] / samples[0]["loss"] for sample in samples)
sys.exit(0 if worst <= 1 + args.within / 100 else 1)
