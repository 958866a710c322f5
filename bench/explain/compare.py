#!/usr/bin/env python3
"""The algorithm that herd chooses beside the fastest one, and what it predicts beside what it measures.

    python bench/explain/compare.py [--build build/release] [--ops all_reduce,...] [--bytes 4KiB,1MiB,64MiB]
        [--ranks 2,4] [--seconds 0.3] [--wire 1gbit] [--per-host 1,2] [--only shm|wire] [--rounds 3]
        [--out explain.jsonl]
    python bench/explain/compare.py --rows explain.jsonl,.. [--page docs/guide/benchmarks.md]

Ranks of one host over shared memory, in ordinary and in symmetric memory; and, as root, two hosts (network namespaces
joined by a virtual cable that is limited to --wire; none: as fast as the machine copies) of 1 and 2 ranks. Each run is
one of `herd bench`: first with the algorithm that it chooses on what its job measured when it began, then with each of
the others that herd considers. JSONL, then a table of medians of all rounds. "of best" is the choice's time over that
of the fastest, "off" is the prediction for the choice over its time. Status 1 where a choice takes more than 1.25 of
the fastest, where a run failed, and where there was none. The second form measures nothing: its table is of lines that
earlier calls wrote, also ones that were ended halfway.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "scripts"))
import two_hosts  # noqa: E402

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
parser.add_argument("--out", default="explain.jsonl")
parser.add_argument("--rows", help="files of earlier calls, instead of measuring")
parser.add_argument("--page", help="a page whose part \"explain\" the table replaces")
args = parser.parse_args()
herd = pathlib.Path(args.build).resolve() / "herd"
os.environ.update(OMP_NUM_THREADS="1", HERD_TOKEN=os.urandom(16).hex())


def size_of(text):
    number, unit = text[:-3], text[-3:]
    return int(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


def size_text(count):
    return f"{count >> 20} MiB" if count >= 2**20 else f"{count >> 10} KiB"


def us_text(us):
    return f"{us:.1f} us" if us < 1000 else f"{us / 1e3:.2f} ms"


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


def recorded():
    for name in args.rows.split(","):
        yield from lines_of(pathlib.Path(name).read_text())


def line_of(row):
    return (f"{row['where']:14} {row['op']:15} {row['ranks']:5} {row['memory']:>9} {size_text(row['bytes']):>8}  "
            f"{row['algorithm']:18} {us_text(row['predicted_us']):>10} {us_text(row['us_median']):>10} "
            f"{100 * row['off']:+6.0f}%")


def median_of(runs):
    """One row for all runs of the same: the medians of what was predicted, of what was measured, and of how far off."""
    row = dict(runs[0])
    for key in ("predicted_us", "us_median"):
        row[key] = statistics.median(run[key] for run in runs)
    row["off"] = statistics.median(run["predicted_us"] / run["us_median"] - 1 for run in runs)
    return row


def choice_line(same):
    """Of all rows of one request: the choice of most rounds beside the fastest."""
    by_name = {}
    for row in same:
        by_name.setdefault(row["algorithm"], []).append(row)
    chosen = statistics.mode(row["algorithm"] for row in same if row["chosen"])
    medians = {name: median_of(rows) for name, rows in by_name.items()}
    best = min(medians.values(), key=lambda row: row["us_median"])
    over = medians[chosen]["us_median"] / best["us_median"]
    return over, f"{line_of(medians[chosen])} {best['algorithm']:18} {over:7.2f}{'' if over <= kLimit else ' *'}"


kLimit = 1.25  # of the choice over the fastest
head = (f"{'where':14} {'operation':15} {'ranks':>5} {'memory':>9} {'bytes':>8}  {'algorithm':18} {'predicted':>10} "
        f"{'measured':>10} {'off':>7}")
asked = ("where", "op", "ranks", "memory", "bytes", "dtype", "redop", "root", "in_place")
runs, failed = {}, []  # runs by what was asked
if not args.rows:
    print(head)
with open(os.devnull if args.rows else args.out, "w") as out:
    sources = [recorded] if args.rows else [] if args.only == "wire" else [shared_memory]
    if args.only != "shm" and not args.rows:
        reason = two_hosts.why_not()
        print(f"two_hosts: skipped: {reason}") if reason else sources.append(wire)
    for source in sources * (1 if args.rows else args.rounds):
        for row in source():
            runs.setdefault(tuple(row[key] for key in asked), []).append(row)
            print(json.dumps(row), file=out, flush=True)
            if not args.rows:
                print(line_of(median_of([row])), flush=True)
choices = [choice_line(same) for same in runs.values() if any(row["chosen"] for row in same)]
within = sum(over <= kLimit for over, _ in choices)
table = [f"{head} {'fastest':18} {'of best':>7}", *(line for _, line in choices),
         f"{within} of {len(choices)} choices within {kLimit} of the fastest"]
print("\n".join(table))
if args.page:
    page = pathlib.Path(args.page)
    begin, end = "<!-- explain: written by bench/explain/compare.py -->\n", "<!-- end of explain -->"
    before, rest = page.read_text().split(begin)
    page.write_text(before + begin + f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores:\n```\n" + "\n".join(table) +
                    "\n```\n" + end + rest.split(end)[1])
sys.exit(0 if choices and not failed and within == len(choices) else 1)
