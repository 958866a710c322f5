#!/usr/bin/env python3
"""How much of a drive's rate do the files of strategy.offload = "nvme" reach? Beside fio (scripts/setup --tests).

    python bench/memory_tiers/raw_io.py [--build build/release] [--folder /tmp] [--mib 1024] [--seconds 5] [--rounds 3]
        [--record raw_io]

herd's NvmeFile, the same without registered memory, and fio take turns on a file of one size in one folder, past the
page cache by io_uring, 16 requests of 1 MiB in flight; each writes the file once before it is timed. The table has the
median rates over the rounds and the processor's time for each GB, and the median of herd's rate over fio's, round by
round. With --record the samples are kept as bench/recorded/NAME.jsonl, and the table is written into
docs/guide/benchmarks.md.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import page  # noqa: E402
import tables  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--folder", default="/tmp")
parser.add_argument("--mib", type=int, default=1024)
parser.add_argument("--seconds", type=int, default=5)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
args = parser.parse_args()


def by_herd(*more):
    out = subprocess.run([f"{args.build}/bench/nvme_file_io", args.folder, str(args.mib), str(args.seconds), *more],
                         capture_output=True, text=True, check=True).stdout
    return {name: float(figure) for name, figure in map(str.split, out.splitlines())}


def by_herd_unregistered():
    return by_herd("unregistered")


def by_fio():
    path = f"{args.folder}/herd_raw_io.{os.getpid()}"
    command = ["fio", f"--filename={path}", f"--size={args.mib}M", "--bs=1M", "--iodepth=16", "--ioengine=io_uring", "--direct=1",
               "--output-format=json", "--name=raw"]
    try:
        subprocess.run([*command, "--rw=write"], check=True, capture_output=True)
        out = {}
        for direction in ("write", "read"):
            timed = [*command, f"--rw={direction}", "--time_based", f"--runtime={args.seconds}"]
            job = json.loads(subprocess.run(timed, check=True, capture_output=True, text=True).stdout)["jobs"][0]
            out[direction] = job[direction]["bw_bytes"]
        return out
    finally:
        os.path.exists(path) and os.remove(path)


makers = (by_fio, by_herd, by_herd_unregistered)
rounds = []
for number in range(args.rounds):
    order = makers[number % 3:] + makers[:number % 3]
    rounds.append({maker: maker() for maker in order})
names = {by_fio: "fio", by_herd: "herd", by_herd_unregistered: "unregistered"}
samples = [{names[maker]: figures for maker, figures in one.items()} for one in rounds]
if args.record:
    page.record(args.record, "raw_io", samples)
print(tables.markdown(*tables.raw_io(samples)))
