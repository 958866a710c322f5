#!/usr/bin/env python3
"""Collectives of fp32 on one host: herd against gloo (torch.distributed) and Open MPI, in one run.

    python bench/collective_peers/compare.py [--build build/release] [--ranks 2] [--ops all_reduce,all_gather,..]
        [--bytes 4KiB,1MiB,64MiB,256MiB] [--rounds 5] [--peers gloo,openmpi] [--out FOLDER]

In each round the contenders run all operations in turn, so that whatever else the machine does hits all alike.
Owners rewrite their input before every iteration, and all meet in two barriers, so that who rewrites or checks more is
not always the first to begin; an iteration takes from the first rank's begin to the last one's end. `herd` is
`herd bench --symmetric`, which checks every element; `herd, ordinary` the same on memory that peers don't map.

Every contender also times a cache line's round trip between the cores of ranks 0 and 1, beside its iterations: where
the cores of a virtual machine really are changes within seconds, and times with it. Contenders are compared only where
they ran on cores equally far apart: one core (two threads of it), one cache, or further; above 2 us other
programs had taken a core away meanwhile, and times say little. Writes samples.jsonl (one object a run, kept and added
to over calls) into FOLDER, and a table of medians into docs/guide/benchmarks.md.
"""
import argparse
import datetime
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--python", default=sys.executable, help="a Python with torch, for gloo")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--ops", default="all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all")
parser.add_argument("--bytes", default="4KiB,1MiB,64MiB,256MiB")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--peers", default="gloo,openmpi")
parser.add_argument("--seconds", type=float, default=0.3, help="about, per size and run")
parser.add_argument("--out", default=f"{here}/results")
parser.add_argument("--docs", default=f"{here}/../../docs/guide/benchmarks.md", help="the page that holds the table")
parser.add_argument("--fresh", action="store_true", help="forget the samples of earlier calls")
args = parser.parse_args()


def parse_bytes(text):
    number, unit = re.fullmatch(r"(\d+)\s*([KMG]iB|B)?", text.strip()).groups()
    return int(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}.get(unit, 1)


def show_bytes(size):
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"


def show_us(us):
    return f"{us / 1e3:.2f} ms" if us >= 1000 else f"{us:.2f} us"


def place(ns):
    """Where ranks 0 and 1 ran, told by a cache line's round trip; "taken away": other programs ran on their cores."""
    if ns == 0:
        return "shared cores"
    return "one core" if ns < 75 else "one cache" if ns < 250 else "two caches" if ns < 2000 else "taken away"


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
            with open(record, "a") as f:
                for sample in contender():
                    samples.append({"load": os.getloadavg()[0], "ranks": args.ranks, "dtype": "fp32", "peer": name,
                                    "algbw_GBps": sample["bytes"] / sample["us_median"] / 1e3, **sample})
                    f.write(json.dumps(samples[-1]) + "\n")
            print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)


def median_of(samples, key="us_median"):
    return statistics.median(s[key] for s in samples) if samples else None


def table(samples):
    rows = ["| operation | ranks | bytes | cores | runs | herd | algorithm | of the bound | herd, ordinary | gloo | Open MPI |",
            "|---|---|---|---|---|---|---|---|---|---|---|"]
    groups = {}
    for s in samples:
        groups.setdefault((s["op"], s["ranks"], s["bytes"]), {}).setdefault(place(s["core_ns"]), []).append(s)
    for (op, ranks, size), places in sorted(groups.items()):
        for where, found in sorted(places.items()):
            by = {}
            for s in found:
                by.setdefault(s["peer"], []).append(s)
            ours, ordinary = by.get("herd", []), by.get("herd, ordinary", [])
            if not ours or not by.keys() & {"gloo", "open mpi"}:
                continue
            mine = median_of(ours)

            def peer(name):
                if name not in by:
                    return ""
                us = median_of(by[name])
                against = f", {us / median_of(ordinary):.2f}x" if ordinary else ""
                return f"{show_us(us)} ({us / mine:.2f}x{against})"
            share = ""
            if size >= 2**25:
                share = f"{100 * statistics.median(s['algbw_GBps'] / s['bound_GBps'] for s in ours):.0f} %"
            runs = "+".join(str(len(by.get(n, []))) for n in ("herd", "herd, ordinary", "gloo", "open mpi"))
            rows.append(f"| {op} | {ranks} | {show_bytes(size)} | {where} | {runs} | {show_us(mine)} | "
                        f"{statistics.mode(s['algorithm'] for s in ours)} | {share} | "
                        f"{show_us(median_of(ordinary)) if ordinary else ''} | {peer('gloo')} | {peer('open mpi')} |")
    return "\n".join(rows)


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return re.search(r"model name\s*: (.*)", f.read()).group(1)


os.makedirs(f"{args.build}/bench", exist_ok=True)
flags = ["-O2", "-D_GNU_SOURCE"]
subprocess.run(["cc", *flags, "-shared", "-fPIC", "-x", "c", "-o", f"{args.build}/bench/libcore_distance.so",
                f"{here}/core_distance.h"], check=True)
if "openmpi" in args.peers:
    subprocess.run(["mpicc", *flags, "-o", f"{args.build}/bench/mpi_peer", f"{here}/mpi_peer.c"], check=True)

os.makedirs(args.out, exist_ok=True)
record = f"{args.out}/samples.jsonl"
samples = []
if os.path.exists(record) and not args.fresh:
    with open(record) as f:
        samples = [json.loads(line) for line in f]
else:
    open(record, "w").close()
measure(samples)
begin, end = "<!-- collective_peers: written by compare.py -->\n", "<!-- end of collective_peers -->"
with open(args.docs) as f:
    before, _, rest = f.read().partition(begin)
    _, _, after = rest.partition(end)
with open(args.docs, "w") as f:
    f.write(f"""{before}{begin}{datetime.date.today()}, {cpu_name()}, {os.cpu_count()} cores, Linux {platform.release()}:

{table(samples)}
{end}{after}""")
print(table(samples))
