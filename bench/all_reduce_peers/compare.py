#!/usr/bin/env python3
"""All-reduce of fp32 sums on one host: herd against gloo (torch.distributed) and Open MPI, in one run.

    python bench/all_reduce_peers/compare.py [--build build/release] [--ranks 2] [--bytes 4KiB,1MiB,8MiB,64MiB,256MiB]
        [--rounds 5] [--out all_reduce_peers.jsonl]

In each round each contender runs once per size, in turn, so that whatever else the machine does hits all alike. Owners
rewrite their input before every iteration; times are those of the slowest rank. JSONL, one object a size and contender: op, ranks, bytes, peer, dtype, us_min,
us_median, algbw_GBps, busbw_GBps (of the median; busbw = algbw * 2 (ranks - 1) / ranks). Then a table of medians, and how
many times herd is as fast.
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
parser.add_argument("--python", default=sys.executable, help="a Python with torch, for gloo")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--bytes", default="4KiB,1MiB,8MiB,64MiB,256MiB")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--out", default="all_reduce_peers.jsonl")
args = parser.parse_args()


def parse_bytes(text):
    number, unit = re.fullmatch(r"(\d+)\s*([KMG]iB|B)?", text.strip()).groups()
    return int(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}.get(unit, 1)


def run(commands):
    """Starts all commands, returns the microseconds that they print."""
    processes = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **e})
                 for c, e in commands]
    texts = [p.communicate()[0] for p in processes]
    if any(p.returncode for p in processes):
        sys.exit(f"failed: {commands[0][0]}")
    return [float(us) for text in texts for us in re.findall(r"us ([\d.]+)", text)]


def herd(memory):
    return lambda size, n: run([([f"{args.build}/herd", "run", "-n", str(args.ranks), "--",
                                  f"{args.build}/bench/herd_all_reduce", str(size), str(n), memory], {})])


def gloo(size, n):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    return run([([args.python, f"{here}/gloo_all_reduce.py", str(size), str(n)],
                 {"RANK": str(r), "WORLD_SIZE": str(args.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
                for r in range(args.ranks)])


def open_mpi(size, n):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return run([(["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks),
                  f"{args.build}/bench/mpi_all_reduce", str(size), str(n)], {})])


contenders = {"herd": herd("symmetric"), "herd, ordinary memory": herd("ordinary"), "gloo": gloo}
try:
    subprocess.run(["mpicc", "-O2", "-o", f"{args.build}/bench/mpi_all_reduce", f"{here}/mpi_all_reduce.c"], check=True)
    contenders["open mpi"] = open_mpi
except (FileNotFoundError, subprocess.CalledProcessError) as error:
    print(f"no Open MPI: {error}")

sizes = [parse_bytes(text) for text in args.bytes.split(",")]
times = {(size, name): [] for size in sizes for name in contenders}
for _ in range(args.rounds):
    for size in sizes:
        iterations = max(5, min(2000, 2**28 // size))
        for name, contender in contenders.items():
            times[size, name] += contender(size, iterations)

medians = {key: statistics.median(values) for key, values in times.items()}
with open(args.out, "w") as out:
    for (size, name), values in times.items():
        algbw = size / medians[size, name] / 1e3
        print(json.dumps({"op": "all_reduce", "ranks": args.ranks, "bytes": size, "peer": name, "dtype": "fp32",
                          "us_min": round(min(values), 3), "us_median": round(medians[size, name], 3),
                          "algbw_GBps": round(algbw, 3), "busbw_GBps": round(algbw * 2 * (args.ranks - 1) / args.ranks, 3)}),
              file=out)
print(f"{args.ranks} ranks, us (median)".ljust(28) + "".join(name.rjust(28) for name in contenders))
for size in sizes:
    row = f"{size} bytes".ljust(28)
    for name in contenders:
        text = f"{medians[size, name]:.1f}"
        if not name.startswith("herd"):
            text += f" (herd {medians[size, name] / medians[size, 'herd']:.1f}x)"
        row += text.rjust(28)
    print(row)
