#!/usr/bin/env python3
"""What does data parallel cost? A GPT of 162 M parameters as a plain torch module, fp32, fused AdamW, one thread a rank.

    python bench/ddp_peers/compare.py [--build build/release] [--ranks 2] [--rounds 3] [--steps 6] [--out ddp_peers.jsonl]
        [--layers 12 --width 768 --vocab 50257 --context 256 --batch 2]

Contenders, each once a round, in turn: `side by side` = as many independent one-rank runs at once as there are ranks (the
floor: no communication, the same cores and memory), herd::DistributedDataParallel on the same program, and torch DDP over
gloo. The first step of each run is left out. JSONL, one object a contender: ranks, contender, ms_min, ms_median,
over_floor; then the table.
"""
import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--python", default=sys.executable, help="a Python with torch")
parser.add_argument("--out", default="ddp_peers.jsonl")
for name, value in (("ranks", 2), ("rounds", 3), ("steps", 6), ("layers", 12), ("width", 768), ("vocab", 50257),
                    ("context", 256), ("batch", 2)):
    parser.add_argument(f"--{name}", type=int, default=value)
args = parser.parse_args()
sizes = [str(v) for v in (args.layers, args.width, args.vocab, args.context, args.batch, args.steps)]
program = f"{args.build}/bench/herd_ddp"


def run(commands):
    processes = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **e})
                 for c, e in commands]
    texts = [p.communicate()[0] for p in processes]
    if any(p.returncode for p in processes):
        sys.exit(f"failed: {commands[0][0]}")
    return [float(ms) for text in texts for ms in re.findall(r"ms ([\d.]+)", text)[1:]]


def torch_ddp():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    return run([([args.python, f"{here}/torch_ddp.py", *sizes],
                 {"RANK": str(r), "WORLD_SIZE": str(args.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                for r in range(args.ranks)])


contenders = {
    "side by side": lambda: run([([program, "alone", *sizes], {})] * args.ranks),
    "herd": lambda: run([([f"{args.build}/herd", "run", "-n", str(args.ranks), "--", program, "herd", *sizes], {})]),
    "torch ddp": torch_ddp,
}
times = {name: [] for name in contenders}
for _ in range(args.rounds):
    for name, contender in contenders.items():
        times[name] += contender()
floor = statistics.median(times["side by side"])
with open(args.out, "w") as out:
    for name, values in times.items():
        median = statistics.median(values)
        row = {"ranks": args.ranks, "contender": name, "ms_min": round(min(values), 2), "ms_median": round(median, 2),
               "over_floor": round(median / floor, 3)}
        print(json.dumps(row), file=out)
        print(f"{name:14} median {median:9.1f} ms   min {min(values):9.1f} ms   {median / floor:.3f}x side by side")
