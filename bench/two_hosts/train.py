#!/usr/bin/env python3
"""Training of a 162 M GPT on two hosts (network namespaces joined by a virtual cable), layout beside layout.

    python bench/two_hosts/train.py [--build build/release] [--rate 100mbit] [--steps 3] [--ranks 2] [--rounds 1]
        [--record NAME]
        [--layouts "mesh.pp=2;mesh.pp=1"] [--keep DIR] [--python .venv/bin/python]

In each round each layout, in turn, is one run of `herd train`, --ranks on each host, one thread each; the ranks of a
host are neighbours, so that a pipeline's stages are on different hosts and what is data parallel stays within one. Prints of each the median
step, what was predicted before the first, how many times as long as the first layout it took, and of the time that
collectives inside the layers of rank 0 were on their way, how much its compute lane worked meanwhile (tensor parallel;
from trace.json, which --keep DIR keeps). A layout that begins with "torch" is a kind of bench/training_peers/torch_peers.py over gloo, such
as "torch ddp 4": 4 samples a rank and step. Needs root. With --record its samples, one object a layout, are kept as
bench/recorded/NAME.jsonl, and the table is written into docs/guide/benchmarks.md.

    --ranks 1 --rate 1gbit --rounds 3 --layouts "$SAME;$SAME strategy.schedule=priority", where SAME is
        "optimizer.clip=0 health.check_finite=false train.batch=8 train.micro_batch=4"
    --ranks 1 --rate 1600mbit --layouts "mesh.tp=2 model.context=512 train.batch=8 strategy.sequence_parallel=false;.."
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "scripts"))
import two_hosts  # noqa: E402

sys.path.insert(0, str(here.parent))
import page  # noqa: E402
import tables  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--rate", default="100mbit", help="of the cable, each way, as tc writes it")
parser.add_argument("--steps", type=int, default=3, help="that count")
parser.add_argument("--layouts", default="mesh.pp=2;mesh.pp=1", help="overrides of each, with spaces, separated by ;")
parser.add_argument("--ranks", type=int, default=2, help="of each host")
parser.add_argument("--rounds", type=int, default=1, help="in which each layout runs once")
parser.add_argument("--keep", help="a folder for what the runs write")
parser.add_argument("--python", default=sys.executable, help="a Python with torch")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
args = parser.parse_args()
herd = str(pathlib.Path(args.build).resolve() / "herd")
scratch = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="herd-bench-")).resolve()
os.environ.update(HERD_TOKEN=os.urandom(16).hex())
BEFORE = 3  # steps that do not count: the first wakes memory, the second is traced, and the third has no gathers of that
SETTINGS = ["model.context=128", "train.micro_batch=1", "train.batch=16", f"train.steps={BEFORE + args.steps + 1}",
            "train.threads=1", "log.trace_steps=1", "train.eval_every=0", "checkpoint.every=-1", "comm.deadline_s=600",
            f"log.dir={scratch}"]


def steps_of(hosts, name, layout):
    command = [herd, "train", str(here.parents[1] / "share/herd/models/gpt-162m.toml"), "--ranks", str(args.ranks), "--nnodes", "2",
               "--rendezvous", f"{hosts.addresses[0]}:29400", *SETTINGS, f"log.name={name}", *layout.split()]
    started = [hosts.start(node, [*command, "--node-rank", str(node)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True) for node in (0, 1)]
    texts = [one.communicate()[0] for one in started]
    if any(one.returncode for one in started):
        sys.exit(f"failed: {layout}\n" + "\n".join(texts))
    return [row for row in map(json.loads, (scratch / name / "metrics.jsonl").read_text().splitlines()) if "step_ms" in row]


def torch_steps(hosts, layout):
    _, kind, batch = layout.split()
    sizes = map(str, (12, 768, 50257, 128, batch, BEFORE + args.steps))
    command = [args.python, str(here.parent / "training_peers/torch_peers.py"), kind, *sizes]
    started = []
    for rank in range(2 * args.ranks):
        node = rank // args.ranks
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank), "WORLD_SIZE": str(2 * args.ranks), "MASTER_PORT": "29400",
                       "MASTER_ADDR": hosts.addresses[0], "GLOO_SOCKET_IFNAME": hosts.interfaces[node]}
        started.append(hosts.start(node, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment))
    texts = [one.communicate()[0] for one in started]
    if any(one.returncode for one in started):
        sys.exit(f"failed: {layout}\n" + "\n".join(texts))
    return [{"step_ms": float(ms), "predicted_step_ms": None} for ms in re.findall(r"(?m)^ms (\S+)", texts[0])]


def union(spans):
    """Sorted, without overlaps."""
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return joined


def hidden(name):
    """The share of the time of collectives inside layers in which rank 0 computed; None where there are none."""
    events = json.loads((scratch / name / "trace.json").read_text())["traceEvents"]
    lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = {lane: union((event["ts"], event["ts"] + event["dur"]) for event in events if event["ph"] == "X" and
                         lanes.get((event["pid"], event["tid"])) == lane) for lane in ("compute", "activations")}
    on_their_way = sum(end - begin for begin, end in spans["activations"])
    both = sum(max(0, min(end, until) - max(begin, since)) for begin, end in spans["activations"]
               for since, until in spans["compute"])
    return both / on_their_way if on_their_way else None


samples = []
layouts = args.layouts.split(";")
with two_hosts.TwoHosts(args.rate) as hosts:
    for number in range(args.rounds * len(layouts)):
        layout = layouts[number % len(layouts)]
        foreign = layout.startswith("torch ")
        rows = torch_steps(hosts, layout) if foreign else steps_of(hosts, f"layout{number}", layout)
        rows = rows[BEFORE:BEFORE + args.steps]  # herd's last waits for its own gathers too
        one = {"layout": layout, "rate": args.rate, "ms": [row["step_ms"] for row in rows],
               "predicted_ms": rows[-1]["predicted_step_ms"], "hidden": None if foreign else hidden(f"layout{number}")}
        print(json.dumps(one), file=sys.stderr, flush=True)
        if number < len(layouts):
            samples.append(one)
        else:
            samples[number % len(layouts)]["ms"] += one["ms"]
print(tables.markdown(*tables.two_hosts_train(samples)))
if args.record:
    page.record(args.record, "two_hosts_train", samples)
