#!/usr/bin/env python3
"""The algorithm that herd chooses beside the fastest one, and what it predicts beside what it measures.

    python bench/explain/compare.py [--build build/release] [--ops all_reduce,...] [--bytes 4KiB,1MiB,64MiB]
        [--ranks 2,4] [--seconds 0.3] [--wire 1gbit] [--per-host 1,2] [--only shm|wire] [--rounds 3]
        [--record explain] [--add]

Ranks of one host over shared memory, in ordinary and in symmetric memory; and, as root, two hosts (network namespaces
joined by a virtual cable that is limited to --wire; none: as fast as the machine copies) of 1 and 2 ranks. Each run is
one of `herd bench`: first with the algorithm that it chooses on what its job measured when it began, then with each of
the others that herd considers. Prints a table of medians of all rounds. "of best" is the choice's time over that of the
fastest, "off" is the prediction for the choice over its time. Status 1 where a choice takes more than 1.25 of the fastest,
where a run failed, and where there was none. With --record the samples, one object a run, are kept after each round as
bench/recorded/NAME.jsonl, and the table is written into docs/guide/benchmarks.md; with --add those that it holds count,
too, and --rounds 0 measures nothing.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "scripts"))
import two_hosts  # noqa: E402

sys.path.insert(0, str(here.parent))
import page  # noqa: E402
import tables  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--ops", default="all_reduce,all_gather,reduce_scatter,broadcast,all_to_all")
parser.add_argument("--bytes", default="4KiB,1MiB,64MiB")
parser.add_argument("--ranks", default="2,4", help="of one host")
parser.add_argument("--seconds", default="0.3", help="of bench per line")
parser.add_argument("--wire", default="1gbit", help="rate of the cable, each way, as tc writes it; none: no limit")
parser.add_argument("--per-host", default="1,2", help="ranks of each of the two hosts")
parser.add_argument("--only", choices=["shm", "wire"])
parser.add_argument("--rounds", type=int, default=3, help="of all; medians count")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
parser.add_argument("--add", action="store_true", help="to the samples that are kept")
args = parser.parse_args()
herd = pathlib.Path(args.build).resolve() / "herd"
os.environ.update(OMP_NUM_THREADS="1", HERD_TOKEN=os.urandom(16).hex())


def candidates(op, size, *more):
    """The algorithms that herd would time for this request."""
    shown = subprocess.run([herd, "explain", op, "--bytes", size, "--json", *more], capture_output=True, text=True,
                           check=True).stdout
    return [one["algorithm"] for one in json.loads(shown)["candidates"] if "us" in one and "why_not" not in one]


def lines_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def bench(op, size, algorithm):
    named = ["--algorithm", algorithm] if algorithm else []
    return [str(herd), "bench", op, "--bytes", size, *named, "--seconds", args.seconds, "--json"]


def choice_and_others(where, names, run):
    """A row for the choice, then one for each other algorithm. `run` gives a command and its output."""
    chosen = None
    for name in [None, *names]:
        if name is not None and name == chosen:
            continue
        command, text = run(name)
        lines = lines_of(text)
        if not lines:
            failed.append(command)
            print(f"nothing was measured by: {' '.join(command)}", file=sys.stderr)
        for row in lines:
            chosen = chosen or row["algorithm"]
            yield {"where": where, "chosen": name is None, **row}


def shared_memory():
    for op in args.ops.split(","):
        for ranks in args.ranks.split(","):
            for size in args.bytes.split(","):
                for memory in ("--symmetric", "--ordinary-memory"):
                    asked = ["--ranks", ranks, *([memory] if memory != "--symmetric" else [])]
                    more = ["--ranks", ranks, *(["--symmetric"] if memory == "--symmetric" else [])]

                    def run(name):
                        ran = subprocess.run([*bench(op, size, name), *more], stdout=subprocess.PIPE, text=True)
                        return ran.args, ran.stdout
                    yield from choice_and_others("shm", candidates(op, size, *asked), run)


def wire():
    with two_hosts.TwoHosts(rate=None if args.wire == "none" else args.wire) as hosts:
        for ranks in map(int, args.per_host.split(",")):
            for op in args.ops.split(","):
                for size in args.bytes.split(","):
                    def run(name):
                        launch = [[str(herd), "run", "-n", str(ranks), "--nnodes", "2", "--node-rank", str(node),
                                   "--rendezvous", f"{hosts.addresses[0]}:29400", "--", *bench(op, size, name)]
                                  for node in (0, 1)]
                        started = [hosts.start(node, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                               text=True) for node, command in enumerate(launch)]
                        text = "\n".join(one.communicate(timeout=300)[0] for one in started)
                        return launch[0], "\n".join(line.split("] ", 1)[-1] for line in text.splitlines())
                    where = f"{'no limit' if args.wire == 'none' else args.wire}, 2 x {ranks}"
                    names = candidates(op, size, "--ranks", str(2 * ranks), "--topology", f"hosts:2x{ranks}")
                    yield from choice_and_others(where, names, run)


failed = []
sources = [] if args.only == "wire" else [shared_memory]
if args.only != "shm":
    reason = two_hosts.why_not()
    print(f"two_hosts: skipped: {reason}") if reason else sources.append(wire)
samples = page.recorded(args.record) if args.add else []
for _ in range(args.rounds):
    for source in sources:
        for sample in source():
            samples.append(sample)
            print(json.dumps(sample), file=sys.stderr, flush=True)
    if args.record:
        page.record(args.record, "explain", samples)
overs = [over for over, _ in tables.choices(samples)]
within = sum(over <= tables.WITHIN for over in overs)
print(tables.markdown(*tables.explain(samples)))
print(f"{within} of {len(overs)} choices within {tables.WITHIN} of the fastest")
sys.exit(0 if overs and not failed and within == len(overs) else 1)
