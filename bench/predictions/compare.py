#!/usr/bin/env python3
"""Does a step take what was predicted? Many short runs, each with its own calibration.

    python bench/predictions/compare.py [--build build/release] [--ranks 2] [--rounds 2] [--steps 8] [--only NAME,NAME]
        [--layers 4 --width 512 --vocab 16384 --context 256 --batch 2] [--record predictions]
        [--add]

Contenders take turns, each once a round: two runs of one rank side by side (alone), data parallel, ZeRO-1 to 3, full and
selective recompute (the latter with dropout), bf16, frozen (the embeddings and half of the blocks), four micro-batches;
and the programs of examples/ that train a model of their own, at sizes where a step takes some 100 ms.
A run's step is the median of those after the first. The table goes to standard output: over the runs the middle, and the
smallest and largest. With --record the samples, one object a run (contender, predicted_ms, ms), are kept as
bench/recorded/NAME.jsonl, and the table is written into docs/guide/benchmarks.md; with --add those that it holds count,
too.
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
parser.add_argument("--only", default="", help="contenders, with commas between; default: all")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
parser.add_argument("--add", action="store_true", help="to the samples that are kept")
for name, value in (("ranks", 2), ("rounds", 2), ("steps", 8), ("layers", 4), ("width", 512), ("vocab", 16384),
                    ("context", 256), ("batch", 2)):
    parser.add_argument(f"--{name}", type=int, default=value)
args = parser.parse_args()

frozen = " ".join(["wte.*", "wpe.*", *(f"h.{i}.*" for i in range(args.layers // 2))])
contenders = {
    "alone": [],
    "data parallel": [],
    **{f"ZeRO-{stage}": [f"strategy.zero={stage}"] for stage in (1, 2, 3)},
    "full recompute": ["strategy.recompute=full"],
    "selective": ["model.dropout=0.1", "strategy.recompute=selective"],
    "ZeRO-3, full": ["strategy.zero=3", "strategy.recompute=full"],
    "bf16": ["strategy.precision=bf16"],
    "bf16 ZeRO-3": ["strategy.precision=bf16", "strategy.zero=3"],
    "frozen": [f"model.frozen={frozen}"],
    "4 micro-batches": [f"train.batch={4 * args.ranks * args.batch}"],
    "ZeRO-3, 4 micro-batches": [f"train.batch={4 * args.ranks * args.batch}", "strategy.zero=3"],
}
own_model = [f"train.batch={512 * args.ranks}", "train.micro_batch=128"]
two_towers = [f"train.batch={2048 * args.ranks}", "train.micro_batch=1024"]
bert_lecture = [f"train.batch={4 * args.ranks}", "train.micro_batch=4"]
own = {  # the first word names the program
    "own_model": own_model,
    "own_model ZeRO-3": [*own_model, "strategy.zero=3", "strategy.recompute=full"],
    "own_model pipeline": [*own_model, f"mesh.pp={args.ranks}"],
    "two_towers": two_towers,
    "bert_lecture": bert_lecture,
    "bert_lecture ZeRO-3": [*bert_lecture, "strategy.zero=3"],
}
contenders.update(own)
if args.only:
    contenders = {name: contenders[name] for name in args.only.split(",")}


MODEL = f"{here}/../../share/herd/models/gpt-162m.toml"
SETTINGS = [f"train.steps={args.steps}", "train.eval_every=0", "train.threads=1", "checkpoint.every=-1",
            "checkpoint.resume=none"]
GPT = [f"model.layers={args.layers}", f"model.width={args.width}", f"model.heads={args.width // 64}",
       f"model.context={args.context}", f"model.vocab={args.vocab}", f"train.micro_batch={args.batch}"]


def command(contender, ranks):
    if contender not in own:
        return [f"{args.build}/herd", "train", MODEL, "--ranks", str(ranks), *GPT, f"train.batch={ranks * args.batch}"]
    program = contender.split()[0]
    return [f"{args.build}/herd", "run", "-n", str(ranks), "--", f"{args.build}/examples/{program}",
            f"{here}/../../examples/{program}.toml"]


def run(contender, overrides):
    """One object for each run."""
    runs, ranks = (args.ranks, 1) if contender == "alone" else (1, args.ranks)
    with tempfile.TemporaryDirectory(prefix="herd_predictions.") as folder:
        started = []
        for i in range(runs):
            words = [*command(contender, ranks), *SETTINGS, f"log.dir={folder}", f"log.name={i}", *overrides]
            started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        texts = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            sys.exit("".join(texts))
        for i in range(runs):
            with open(f"{folder}/{i}/metrics.jsonl") as lines:
                steps = [row for row in map(json.loads, lines) if "step_ms" in row]
            yield {"contender": contender, "ranks": args.ranks, "predicted_ms": steps[0]["predicted_step_ms"],
                   "ms": [row["step_ms"] for row in steps[1:]]}


rows = [row for row in page.recorded(args.record) if row["ranks"] == args.ranks] if args.add else []
for _ in range(args.rounds):
    for contender, overrides in contenders.items():
        rows += run(contender, overrides)
        if args.record:
            page.record(args.record, "predictions", rows)
print(tables.markdown(*tables.predictions(rows)))
