#!/usr/bin/env python3
"""Training of a 162 M GPT on two hosts (network namespaces joined by a virtual cable), layout beside layout.

    python bench/two_hosts/train.py [--build build/release] [--rate 100mbit] [--steps 3] [--out train.jsonl]
        [--layouts "mesh.pp=2;mesh.pp=1"]

Each layout is one run of `herd train`, two ranks on each host, one thread each; the ranks of a host are neighbours, so
that a pipeline's stages are on different hosts and what is data parallel stays within one. Prints of each the median
step, what was predicted before the first, and how many times as long as the first layout it took. Needs root.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "scripts"))
import two_hosts  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--rate", default="100mbit", help="of the cable, each way, as tc writes it")
parser.add_argument("--steps", type=int, default=3, help="after the first, which is left out")
parser.add_argument("--layouts", default="mesh.pp=2;mesh.pp=1", help="overrides of each, with spaces, separated by ;")
parser.add_argument("--out", default="train.jsonl")
args = parser.parse_args()
herd = str(pathlib.Path(args.build).resolve() / "herd")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="herd-bench-"))
os.environ.update(HERD_TOKEN=os.urandom(16).hex())
SETTINGS = ["model.context=128", "train.micro_batch=1", "train.batch=16", f"train.steps={1 + args.steps}", "train.threads=1",
            "train.eval_every=0", "checkpoint.every=-1", "log.trace_steps=0", "comm.deadline_s=600", f"log.dir={scratch}"]


def steps_of(hosts, name, layout):
    command = [herd, "train", str(here.parents[1] / "share/herd/models/gpt-162m.toml"), "--ranks", "2", "--nnodes", "2",
               "--rendezvous", f"{hosts.addresses[0]}:29400", *SETTINGS, f"log.name={name}", *layout.split()]
    started = [hosts.start(node, [*command, "--node-rank", str(node)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True) for node in (0, 1)]
    texts = [one.communicate()[0] for one in started]
    if any(one.returncode for one in started):
        sys.exit(f"failed: {layout}\n" + "\n".join(texts))
    return [row for row in map(json.loads, (scratch / name / "metrics.jsonl").read_text().splitlines()) if "step_ms" in row]


with two_hosts.TwoHosts(args.rate) as hosts, open(args.out, "w") as out:
    print("| layout | steps | median ms | predicted ms | % of predicted | beside the first |\n|---|---|---|---|---|---|")
    first = None
    for number, layout in enumerate(args.layouts.split(";")):
        rows = steps_of(hosts, f"layout{number}", layout)[1:]
        ms, predicted = statistics.median(row["step_ms"] for row in rows), rows[-1]["predicted_step_ms"]
        first = first or ms
        print(json.dumps({"layout": layout, "rate": args.rate, "ms": [row["step_ms"] for row in rows],
                          "predicted_ms": predicted}), file=out, flush=True)
        print(f"| {layout} | {len(rows)} | {ms:.0f} | {predicted:.0f} | {100 * ms / predicted:.0f} | {ms / first:.2f} |", flush=True)
