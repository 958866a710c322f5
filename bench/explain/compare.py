#!/usr/bin/env python3
"""What herd predicts for collectives beside what it measures, algorithm by algorithm.

    python bench/explain/compare.py [--build build/release] [--ops all_reduce,...] [--bytes 4KiB,1MiB,64MiB]
        [--ranks 2,4] [--seconds 0.3] [--wire 1gbit] [--per-host 1,2] [--only shm|wire] [--rounds 3]
        [--out explain.jsonl]
    python bench/explain/compare.py --rows explain.jsonl,.. [--page docs/guide/benchmarks.md]

Ranks of one host over shared memory, in ordinary and in symmetric memory; and, as root, two hosts (network namespaces
joined by a virtual cable that is limited to --wire; none: as fast as the machine copies) of 1 and 2 ranks. Each run is
one of `herd bench`, whose predictions rest on what it measures by turns with the operation: rates and latencies of this
host, and of the link. JSONL, then a table of medians of all rounds; "off" is the median of each round's own. "limit" is
25 % from 1 MiB up where ranks do not outnumber cores, else 40 %. Status 1 where a median is further off, where a run
failed, and where there was none. The second form measures nothing: its table is of lines that earlier calls wrote, also
ones that were ended halfway.
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
    return [str(herd), "bench", op, "--bytes", size, "--algorithm", algorithm, "--seconds", args.seconds, "--json"]


def rows_of(where, text, command):
    lines = lines_of(text)
    if not lines:
        failed.append(command)
        print(f"nothing was measured by: {' '.join(command)}", file=sys.stderr)
    for row in lines:
        yield {"where": where, **row}


def shared_memory():
    for op in args.ops.split(","):
        for ranks in args.ranks.split(","):
            for size in args.bytes.split(","):
                for memory in ("--symmetric", "--ordinary-memory"):
                    asked = ["--ranks", ranks, *([memory] if memory != "--symmetric" else [])]
                    for algorithm in candidates(op, size, *asked):
                        more = ["--symmetric"] if memory == "--symmetric" else []
                        ran = subprocess.run([*bench(op, size, algorithm), "--ranks", ranks, *more],
                                             stdout=subprocess.PIPE, text=True)
                        yield from rows_of("shm", ran.stdout, ran.args)


def wire():
    with two_hosts.TwoHosts(rate=None if args.wire == "none" else args.wire) as hosts:
        for ranks in map(int, args.per_host.split(",")):
            for op in args.ops.split(","):
                for size in args.bytes.split(","):
                    for algorithm in candidates(op, size, "--ranks", str(2 * ranks), "--topology", f"hosts:2x{ranks}"):
                        launch = [[str(herd), "run", "-n", str(ranks), "--nnodes", "2", "--node-rank", str(node),
                                   "--rendezvous", f"{hosts.addresses[0]}:29400", "--", *bench(op, size, algorithm)]
                                  for node in (0, 1)]
                        started = [hosts.start(node, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                               text=True) for node, command in enumerate(launch)]
                        text = "\n".join(one.communicate(timeout=300)[0] for one in started)
                        text = "\n".join(line.split("] ", 1)[-1] for line in text.splitlines())
                        where = f"{'no limit' if args.wire == 'none' else args.wire}, 2 x {ranks}"
                        yield from rows_of(where, text, launch[0])


def limit_of(row):
    crowded = row["ranks"] > os.cpu_count()
    return 0.40 if crowded or row["bytes"] < 2**20 else 0.25


def recorded():
    for name in args.rows.split(","):
        yield from lines_of(pathlib.Path(name).read_text())


def line_of(row):
    return (f"{row['where']:14} {row['op']:15} {row['ranks']:5} {row['memory']:>9} {size_text(row['bytes']):>8}  "
            f"{row['algorithm']:18} {us_text(row['predicted_us']):>10} {us_text(row['us_median']):>10} "
            f"{100 * row['off']:+6.0f}% {100 * limit_of(row):5.0f}%{'' if row['within'] else ' *'}")


def judged(runs):
    """One row for all runs of the same: the medians of what was predicted, of what was measured, and of how far off."""
    row = dict(runs[0])
    for key in ("predicted_us", "us_median"):
        row[key] = statistics.median(run[key] for run in runs)
    row["off"] = statistics.median(run["predicted_us"] / run["us_median"] - 1 for run in runs)
    row["within"] = abs(row["off"]) <= limit_of(row)
    return row


head = (f"{'where':14} {'operation':15} {'ranks':>5} {'memory':>9} {'bytes':>8}  {'algorithm':18} {'predicted':>10} "
        f"{'measured':>10} {'off':>7} {'limit':>6}")
asked = ("where", "op", "ranks", "memory", "bytes", "algorithm", "dtype", "redop", "root", "in_place")
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
                print(line_of(judged([row])), flush=True)
rows = [judged(same) for same in runs.values()]
single = [judged([row]) for same in runs.values() for row in same]
counts = [len(same) for same in runs.values()]
table = [head, *map(line_of, rows),
         f"{sum(row['within'] for row in rows)} of {len(rows)} predictions within their limit, medians of "
         f"{min(counts, default=0)} to {max(counts, default=0)} runs each; of single runs "
         f"{sum(row['within'] for row in single)} of {len(single)}"]
print("\n".join(table))
if args.page:
    page = pathlib.Path(args.page)
    begin, end = "<!-- explain: written by bench/explain/compare.py -->\n", "<!-- end of explain -->"
    before, rest = page.read_text().split(begin)
    page.write_text(before + begin + f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores:\n```\n" + "\n".join(table) +
                    "\n```\n" + end + rest.split(end)[1])
sys.exit(0 if rows and not failed and all(row["within"] for row in rows) else 1)
