#!/usr/bin/env python3
"""What does data parallel cost? A GPT of 162 M parameters, fp32, fused AdamW, one thread a rank.

    python bench/ddp_peers/compare.py [--build build/release] [--ranks 2] [--rounds 3] [--steps 6] [--out ddp_peers.jsonl]
        [--only NAME,NAME] [--add] [--layers 12 --width 768 --vocab 50257 --context 256 --batch 2]

Contenders, each once a round, in turn:
    train alone    as many independent one-rank runs of `herd train` side by side as there are ranks: the floor of the next
    herd train     one run of all ranks, gradients clipped by their norm as by default
    zero1 .. zero3 the same with strategy.zero = 1 .. 3
    full           herd train with strategy.recompute = "full"; its floor is herd train
    dropout, selective   herd train with model.dropout = 0.1, the floor of the same with strategy.recompute = "selective"
                   (without dropout no T x T matrix is kept, and the program is the same)
    bf16 alone, bf16 train, bf16 zero3   the same with strategy.precision = "bf16"
    module alone   the same for a plain torch module in C++, the floor of the two below
    herd ddp       herd::DistributedDataParallel on that module
    torch ddp, torch zero, torch fsdp2, torch fsdp2_bf16   torch's own over gloo, from Python: see torch_peers.py
    deepspeed bf16     DeepSpeed's ZeRO-3, where --python has it
    torch bf16 alone   as many independent one-rank runs of torch side by side, weights in bf16: the floor of torch's
                       bf16, beside which `bf16 train` stands, too
The first step of each run is left out. Ranks that work together wait for the slower one at every step, runs side by
side do not: hence also the ratio to the slower of the floor's runs, step by step. Memory is the sum of the PSS of a contender's processes (side by side: of all of
them) at its highest, read in a first round that is not timed. Every round goes to --out, one JSON object a line: ranks,
contender, ms (of each step), predicted_ms (herd train's), pss_gib (first rounds only). With --add the
file's rounds count too, and where it has a contender's memory there is no first round: a long comparison can be made in
short sittings. The table of all of them goes to standard output.
"""
import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--python", default=sys.executable, help="a Python with torch")
parser.add_argument("--out", default="ddp_peers.jsonl")
parser.add_argument("--only", default="", help="contenders, with commas between; default: all")
parser.add_argument("--add", action="store_true", help="to the rounds that --out holds")
for name, value in (("ranks", 2), ("rounds", 3), ("steps", 6), ("layers", 12), ("width", 768), ("vocab", 50257),
                    ("context", 256), ("batch", 2)):
    parser.add_argument(f"--{name}", type=int, default=value)
args = parser.parse_args()
sizes = [str(v) for v in (args.layers, args.width, args.vocab, args.context, args.batch, args.steps)]
program = f"{args.build}/bench/herd_ddp"
herd = f"{args.build}/herd"
scratch = tempfile.TemporaryDirectory(prefix="herd_ddp_peers.")

RUN_FILE = f"""
[model]
kind = "gpt"
layers = {args.layers}
width = {args.width}
heads = {args.width // 64}
context = {args.context}
vocab = {args.vocab}
tie_embeddings = false
[data]
kind = "random"
[train]
steps = {args.steps}
micro_batch = {args.batch}
eval_every = 0
threads = 1
[optimizer]
lr = 1e-3
[checkpoint]
every = -1
resume = "none"
[log]
dir = "{scratch.name}"
every = 1
"""


def pss_bytes(roots):
    """Memory of the processes and all below them; what ranks share counts once."""
    parents = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                parents.setdefault(int(open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
        except OSError:
            pass
    total, left = 0, list(roots)
    while left:
        pid = left.pop()
        left += parents.get(pid, [])
        try:
            total += int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M)[1]) << 10
        except (OSError, TypeError):
            pass
    return total


def run(commands, watch):
    """(milliseconds of each step but a run's first, highest PSS or 0) of commands that run at once."""
    errors = open(f"{scratch.name}/errors", "w+")
    processes = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=errors, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": "1", **e}) for c, e in commands]
    highest, over = [0], threading.Event()

    def look():
        while not over.wait(0.5):
            highest[0] = max(highest[0], pss_bytes([p.pid for p in processes]))

    if watch:
        threading.Thread(target=look, daemon=True).start()
    texts = [p.communicate()[0] for p in processes]
    over.set()
    if any(p.returncode for p in processes):
        errors.seek(0)
        sys.exit(f"failed: {' '.join(commands[0][0])}\n{errors.read()[-2000:]}")
    return [float(ms) for text in texts for ms in re.findall(r"ms ([\d.]+)", text)[1:]], highest[0]


def herd_train(runs, ranks, watch, *overrides):
    """The same of runs of herd train, and the milliseconds of a step that the last of them predicted."""
    commands, folders = [], []
    for i in range(runs):
        file = f"{scratch.name}/{i}.toml"
        with open(file, "w") as out:
            out.write(RUN_FILE)
        folders.append(f"{scratch.name}/run{i}")
        commands.append(([herd, "train", file, "--ranks", str(ranks), f"train.batch={ranks * args.batch}", f"log.name=run{i}",
                          *overrides], {}))
    _, pss = run(commands, watch)
    times, predicted = [], 0
    for folder in folders:
        with open(f"{folder}/metrics.jsonl") as lines:
            steps = [row for row in map(json.loads, lines) if "step_ms" in row]
        times += [row["step_ms"] for row in steps[1:]]
        predicted = steps[-1]["predicted_step_ms"]
    return times, pss, predicted


def torch_run(kind, ranks, watch):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    return run([([args.python, f"{here}/torch_peers.py", kind, *sizes],
                 {"RANK": str(r if ranks > 1 else 0), "LOCAL_RANK": str(r), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": port}) for r in range(args.ranks)], watch)


DROPOUT = "model.dropout=0.1"
BF16 = "strategy.precision=bf16"
contenders = {
    "train alone": lambda watch: herd_train(args.ranks, 1, watch),
    "herd train": lambda watch: herd_train(1, args.ranks, watch),
    **{f"zero{stage}": lambda watch, stage=stage: herd_train(1, args.ranks, watch, f"strategy.zero={stage}")
       for stage in (1, 2, 3)},
    "full": lambda watch: herd_train(1, args.ranks, watch, "strategy.recompute=full"),
    "dropout": lambda watch: herd_train(1, args.ranks, watch, DROPOUT),
    "selective": lambda watch: herd_train(1, args.ranks, watch, DROPOUT, "strategy.recompute=selective"),
    "bf16 alone": lambda watch: herd_train(args.ranks, 1, watch, BF16),
    "bf16 train": lambda watch: herd_train(1, args.ranks, watch, BF16),
    "bf16 zero3": lambda watch: herd_train(1, args.ranks, watch, BF16, "strategy.zero=3"),
    "module alone": lambda watch: run([([program, "alone", *sizes], {})] * args.ranks, watch),
    "herd ddp": lambda watch: run([([herd, "run", "-n", str(args.ranks), "--", program, "herd", *sizes], {})], watch),
    **{f"torch {kind}": lambda watch, kind=kind: torch_run(kind, args.ranks, watch)
       for kind in ("ddp", "zero", "fsdp2", "fsdp2_bf16")},
    "deepspeed bf16": lambda watch: torch_run("deepspeed_bf16", args.ranks, watch),
    "torch bf16 alone": lambda watch: torch_run("bf16", 1, watch),
}
floors = {name: "train alone" for name in ("train alone", "herd train", "zero1", "zero2", "zero3")}
floors |= {"full": "herd train", "dropout": "herd train", "selective": "dropout"}
floors |= {name: "bf16 alone" for name in ("bf16 alone", "bf16 train", "bf16 zero3")}
floors |= {name: "torch bf16 alone" for name in ("torch bf16 alone", "torch fsdp2_bf16", "deepspeed bf16")}
if args.only:
    contenders = {name: contenders[name] for name in args.only.split(",")}
rows = []
if args.add and os.path.exists(args.out):
    rows = [row for row in map(json.loads, open(args.out)) if row["ranks"] == args.ranks]
with open(args.out, "a" if args.add else "w") as out:
    def note(name, ms, pss, predicted=0):
        rows.append({"ranks": args.ranks, "contender": name, "ms": ms, **({"pss_gib": pss / 2**30} if pss else {}),
                     **({"predicted_ms": predicted} if predicted else {})})
        print(json.dumps(rows[-1]), file=out, flush=True)

    for name, contender in contenders.items():
        if not any(row["contender"] == name and "pss_gib" in row for row in rows):
            note(name, [], contender(True)[1])
    for _ in range(args.rounds):
        for name, contender in contenders.items():
            ms, _, *predicted = contender(False)
            note(name, ms, 0, *predicted)


def times(name):
    return [ms for row in rows if row["contender"] == name for ms in row["ms"]]


def slower_run(ms):
    """Of runs side by side, one after the other in `ms`: each step of whichever took longer."""
    steps = len(ms) // args.ranks
    return [max(ms[step::steps]) for step in range(steps)]


def over_floor(name, of_floor=lambda ms: ms):
    """Of each round the contender's median step over that of the floor's run nearest in time: the middle of the rounds."""
    timed = [row for row in rows if row["ms"]]
    middles = [(i, row["contender"], statistics.median(of_floor(row["ms"]) if row["contender"].endswith("alone") else row["ms"]))
               for i, row in enumerate(timed)]
    floor = [(i, ms) for i, contender, ms in middles if contender == floors.get(name, "module alone")]
    ratios = [ms / min(floor, key=lambda other: abs(other[0] - i))[1] for i, contender, ms in middles if contender == name and floor]
    return f"{statistics.median(ratios):.3f}" if ratios else ""


def of_predicted(name):
    """A run's median step over what that run had predicted: the middle of the rounds."""
    shares = [statistics.median(row["ms"]) / row["predicted_ms"] for row in rows
              if row["contender"] == name and row["ms"] and row.get("predicted_ms")]
    return f"{100 * statistics.median(shares):.0f} %" if shares else ""


print(f"| {args.ranks} ranks | rounds | median ms | min ms | tokens/s | over its floor | over its slower run "
      "| of predicted | peak PSS |\n|---|---|---|---|---|---|---|---|---|")
for name in dict.fromkeys(row["contender"] for row in rows):
    if not times(name):
        continue
    median = statistics.median(times(name))
    print(f"| {name} | {sum(1 for row in rows if row['contender'] == name and row['ms'])} | {median:.0f} | {min(times(name)):.0f} "
          f"| {1e3 * args.ranks * args.batch * args.context / median:.0f} "
          f"| {over_floor(name)} | {over_floor(name, slower_run)} | {of_predicted(name)} "
          f"| {max(row.get('pss_gib', 0) for row in rows if row['contender'] == name):.2f} GiB |")
