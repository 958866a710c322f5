#!/usr/bin/env python3
"""What ZeRO++ sends between two hosts (network namespaces joined by a virtual cable), and how long its step takes.

    python bench/zero_plus_plus/hosts.py [--build build/release] [--rate 1gbit] [--tokens 128,512] [--steps 3]
        [--rounds 1] [--only "NAME;NAME"] [--keep DIR] [--record zero_plus_plus]

Trains the GPT of 162 M parameters in bf16 on two hosts of two ranks, a thread each. Contenders take turns, each once a
round and number of tokens: flat ZeRO-3 over all ranks, shards inside hosts alone (hybrid), and ZeRO-3 with the parts of
ZeRO++, each by itself and together. The table has the median step, the bytes that cross the cable in a step, both ways,
and both beside flat ZeRO-3. Bytes are those of the cable's counters between the ends of two steps: frames, with all
their headers. The published figure is 0.25 of flat ZeRO-3's. Needs root.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parents[1] / "scripts"), str(here.parent)]
import page  # noqa: E402
import tables  # noqa: E402
import two_hosts  # noqa: E402

CODEC, SECOND, INT4 = "strategy.gather_codec=int8", "strategy.secondary_shard=true", "strategy.compression=int4"
CONTENDERS = {
    "flat ZeRO-3": [],
    "hybrid": ["mesh.fsdp=2"],
    "gather_codec": [CODEC],
    "secondary_shard": [SECOND],
    "compression": [INT4],
    "ZeRO++": [CODEC, SECOND, INT4],
}
RANKS = 2  # of a host
BEFORE = 2  # steps that do not count

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--rate", default="1gbit", help="of the cable, each way, as tc writes it")
parser.add_argument("--tokens", default="128,512", help="of a rank and step, a sequence of so many")
parser.add_argument("--steps", type=int, default=3, help="that count")
parser.add_argument("--rounds", type=int, default=1)
parser.add_argument("--only", default="", help="contenders, with semicolons between; default: all")
parser.add_argument("--keep", help="a folder for what the runs write")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
args = parser.parse_args()
herd = str(pathlib.Path(args.build).resolve() / "herd")
contenders = {name: CONTENDERS[name] for name in args.only.split(";")} if args.only else CONTENDERS
scratch = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="herd-bench-")).resolve()
os.environ.setdefault("HERD_TOKEN", os.urandom(16).hex())


def on_the_cable(hosts):
    """The bytes that have left both hosts."""
    return sum(int(subprocess.run(["ip", "netns", "exec", hosts.names[node], "cat",
                                   f"/sys/class/net/{hosts.interfaces[node]}/statistics/tx_bytes"],
                                  capture_output=True, text=True, check=True).stdout) for node in (0, 1))


def steps_done(metrics):
    if not metrics.exists():
        return []
    lines = metrics.read_text().split("\n")[:-1]  # the last may be a part of one
    return [row for row in map(json.loads, lines) if "step_ms" in row]


def run(hosts, name, tokens, overrides):
    """(ms of each step that counts, bytes on the cable of one)"""
    folder = name.replace(" ", "_").replace("+", "p")
    settings = [f"model.context={tokens}", "train.micro_batch=1", f"train.batch={2 * RANKS}", "train.threads=1",
                f"train.steps={BEFORE + args.steps + 1}", "train.eval_every=0", "checkpoint.every=-1",
                "checkpoint.resume=none", "log.trace_steps=0", "comm.deadline_s=600", "strategy.precision=bf16",
                "strategy.zero=3", f"log.dir={scratch}", f"log.name={folder}", *overrides]
    command = [herd, "train", str(here.parents[1] / "share/herd/models/gpt-162m.toml"), "--ranks", str(RANKS), "--nnodes",
               "2", "--rendezvous", f"{hosts.addresses[0]}:29400", *settings]
    started = [hosts.start(node, [*command, "--node-rank", str(node)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True) for node in (0, 1)]
    counted = {}  # steps done -> bytes so far
    while started[0].poll() is None:
        counted.setdefault(len(steps_done(scratch / folder / "metrics.jsonl")), on_the_cable(hosts))
        time.sleep(0.005)
    texts = [one.communicate()[0] for one in started]
    if any(one.returncode for one in started):
        sys.exit(f"failed: {name}\n" + "\n".join(texts))
    rows = steps_done(scratch / folder / "metrics.jsonl")
    last = BEFORE + args.steps
    if BEFORE not in counted or last not in counted:
        sys.exit(f"{name}: steps are too short to count their bytes; more --tokens, or a slower --rate")
    return [row["step_ms"] for row in rows[BEFORE:last]], (counted[last] - counted[BEFORE]) / args.steps


if reason := two_hosts.why_not():
    print(f"two_hosts: skipped: {reason}")
    sys.exit(two_hosts.CANNOT)
samples = []
with two_hosts.TwoHosts(args.rate) as hosts:
    for number in range(args.rounds):
        for tokens in map(int, args.tokens.split(",")):
            for name, overrides in contenders.items():
                ms, sent = run(hosts, f"{name}-{tokens}-{number}", tokens, overrides)
                samples.append({"tokens": tokens, "name": name, "ms": ms, "bytes": sent})
                print(json.dumps(samples[-1]), file=sys.stderr, flush=True)
print(tables.markdown(*tables.zero_plus_plus(samples)))
if args.record:
    page.record(args.record, "zero_plus_plus", samples)
