#!/usr/bin/env python3
"""Collectives of fp32 on one host: herd against gloo (torch.distributed) and Open MPI, in one run.

    python bench/collective_peers/compare.py [--build build/release] [--ranks 2] [--ops all_reduce,all_gather,..]
        [--bytes 4KiB,1MiB,64MiB,256MiB] [--rounds 5] [--peers gloo,openmpi] [--record collective_peers]

In each round the contenders run all operations in turn, so that whatever else the machine does hits all alike.
Owners rewrite their input before every iteration, and all meet in two barriers, so that who rewrites or checks more is
not always the first to begin; an iteration takes from the first rank's begin to the last one's end. `herd` is
`herd bench --symmetric`, which checks every element; `herd, ordinary` the same on memory that peers don't map.

Every contender also times a cache line's round trip between the cores of ranks 0 and 1, beside its iterations: where
the cores of a virtual machine really are changes within seconds, and times with it. Contenders are compared only where
they ran on cores equally far apart: one core (two threads of it), one cache, or further; above 2 us other
programs had taken a core away meanwhile, and times say little. Prints a table of medians. With --record its samples,
one object a run, are added to those of bench/recorded/NAME.jsonl, and the table is written into
docs/guide/benchmarks.md.
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
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(here))
import page  # noqa: E402
import tables  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--python", default=sys.executable, help="a Python with torch, for gloo")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--ops", default="all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all")
parser.add_argument("--bytes", default="4KiB,1MiB,64MiB,256MiB")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--peers", default="gloo,openmpi")
parser.add_argument("--seconds", type=float, default=0.3, help="about, per size and run")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
parser.add_argument("--fresh", action="store_true", help="forget the samples of earlier calls")
args = parser.parse_args()


def parse_bytes(text):
    number, unit = re.fullmatch(r"(\d+)\s*([KMG]iB|B)?", text.strip()).groups()
    return int(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}.get(unit, 1)


def start(commands):
    """Starts all commands, returns the lines they print."""
    processes = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **e})
                 for c, e in commands]
    texts = [p.communicate()[0] for p in processes]
    if any(p.returncode for p in processes):
        sys.exit(f"failed: {commands[0][0]}")
    return [line for text in texts for line in text.splitlines()]


def sizes_for_peer(most):
    """With how often each is run: about as long as herd's share, but not more than `most` times.

    gloo takes hundreds of microseconds for a small message where ranks outnumber cores, so it gets fewer."""
    return [f"{size}:{max(5, min(most, int(args.seconds * 4e9 / max(size, 2**16))))}"
            for size in map(parse_bytes, args.bytes.split(","))]


def samples_of(lines):
    for line in lines:
        word, op, size, ns, *us = line.split()
        assert word == "peer", line
        times = [float(t) for t in us]
        yield {"op": op, "bytes": int(size), "core_ns": float(ns), "us_median": statistics.median(times),
               "us_min": min(times)}


def herd(memory):
    for op in args.ops.split(","):
        lines = start([([f"{args.build}/herd", "bench", op, "--ranks", str(args.ranks), "--bytes", args.bytes, "--json",
                         "--seconds", str(args.seconds), *memory], {})])
        for line in map(json.loads, lines):
            yield {key: line[key] for key in ("op", "bytes", "core_ns", "us_median", "us_min", "algorithm", "bound_GBps")}


def gloo():
    with socket.socket() as s, tempfile.TemporaryDirectory() as folder:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        s.close()
        return list(samples_of(start([
            ([args.python, f"{here}/gloo_peer.py", f"{args.build}/bench/libcore_distance.so", f"{folder}/words", args.ops,
              *sizes_for_peer(500)], {"RANK": str(r), "WORLD_SIZE": str(args.ranks), "MASTER_ADDR": "127.0.0.1",
                             "MASTER_PORT": str(port)}) for r in range(args.ranks)])))


def open_mpi():
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder:
        return list(samples_of(start([(["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks),
                                        f"{args.build}/bench/mpi_peer", f"{folder}/words", args.ops,
                                        *sizes_for_peer(20000)], {})])))


def measure(samples):
    contenders = {"herd": lambda: herd(["--symmetric"]), "herd, ordinary": lambda: herd([])}
    if "gloo" in args.peers:
        contenders["gloo"] = gloo
    if "openmpi" in args.peers:
        contenders["open mpi"] = open_mpi
    for _ in range(args.rounds):
        for name, contender in contenders.items():
            begin = time.monotonic()
            for sample in contender():
                samples.append({"load": os.getloadavg()[0], "ranks": args.ranks, "dtype": "fp32", "peer": name,
                                "algbw_GBps": sample["bytes"] / sample["us_median"] / 1e3, **sample})
            print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)


os.makedirs(f"{args.build}/bench", exist_ok=True)
flags = ["-O2", "-D_GNU_SOURCE"]
subprocess.run(["cc", *flags, "-shared", "-fPIC", "-x", "c", "-o", f"{args.build}/bench/libcore_distance.so",
                f"{here}/cache_line_round_trip.h"], check=True)
if "openmpi" in args.peers:
    subprocess.run(["mpicc", *flags, "-o", f"{args.build}/bench/mpi_peer", f"{here}/mpi_peer.c"], check=True)

samples = [] if args.fresh or not args.record else page.recorded(args.record)
measure(samples)
if args.record:
    page.record(args.record, "collective_peers", samples)
print(tables.markdown(*tables.collective_peers(samples)))
