#!/usr/bin/env python3
"""How much of a drive's rate do the files of strategy.offload = "nvme" reach? Beside fio (scripts/setup --tests).

    python bench/memory_tiers/raw_io.py [--build build/release] [--folder /tmp] [--mib 1024] [--seconds 5] [--rounds 3]

herd's NvmeFile, the same without registered memory, and fio take turns on a file of one size in one folder, past the
page cache by io_uring, 16 requests of 1 MiB in flight; each writes the file once before it is timed. The table has the
median rates over the rounds and the processor's time for each GB, and the median of herd's rate over fio's, round by
round.
"""
import argparse
import json
import os
import statistics
import subprocess

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--folder", default="/tmp")
parser.add_argument("--mib", type=int, default=1024)
parser.add_argument("--seconds", type=int, default=5)
parser.add_argument("--rounds", type=int, default=3)
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
print("| | herd GB/s | unregistered GB/s | fio GB/s | herd over fio | cpu ms a GB | unregistered cpu ms a GB |\n|---|---|---|---|---|---|---|")
for direction in ("write", "read"):
    median = {maker: statistics.median(one[maker][direction] for one in rounds) / 1e9 for maker in makers}
    over = statistics.median(one[by_herd][direction] / one[by_fio][direction] for one in rounds)
    cpu = [statistics.median(one[maker][f"{direction}_cpu_ms_per_gb"] for one in rounds) for maker in (by_herd, by_herd_unregistered)]
    print(f"| {direction} | {median[by_herd]:.2f} | {median[by_herd_unregistered]:.2f} | {median[by_fio]:.2f} | {over:.2f} | {cpu[0]:.0f} | {cpu[1]:.0f} |")
