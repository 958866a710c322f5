#!/usr/bin/env python3
"""Who sums gradients fastest: a server, all with all, a ring, a tree or a butterfly? Measured beside their equations.

    python bench/topologies/all_reduce.py [--build build/release] [--rate 200mbit] [--mib 4] [--hosts 2,4,8] [--rounds 5]
        [--record topologies]

N workers, each a host (network namespace) whose link carries --rate each way, sum M bytes of fp32: each by one of herd's
algorithms, and through a parameter server on a host of its own, to which all push and from which all pull. The equations
are those of lectures, with B the rate of a link and latencies left out: server N M / B, naive (N-1) M / B, ring
2 (N-1)/N M / B, tree 2 log2(N) M / B, butterfly log2(N) M / B. The rate counts frames, so a 25th of it is lost to
headers; herd's tree sends segments, of which several are on their way at once, where the equation sends the whole.
Times are medians, of the slowest worker. Needs root.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
import page  # noqa: E402
import switched_hosts  # noqa: E402
import tables  # noqa: E402
from switched_hosts import two_hosts  # noqa: E402

# The time of M / B = 1, by the number of workers; and herd's algorithm.
PATTERNS = {
    "server": (lambda n: n, ""),
    "naive": (lambda n: n - 1, "naive"),
    "ring": (lambda n: 2 * (n - 1) / n, "ring"),
    "tree": (lambda n: 2 * math.log2(n), "binomial_tree"),
    "butterfly": (lambda n: math.log2(n), "recursive_doubling"),
}


def measure(args, workers, algorithm):
    """Seconds of each round but the first."""
    num_hosts = workers + (algorithm == "")
    if algorithm:
        program = [f"{args.build}/bench/two_hosts_all_reduce", str(args.mib << 20), str(args.rounds), algorithm]
    else:
        program = [f"{args.build}/bench/round", "1", str(args.mib), str(args.rounds + 1), "alone"]
    texts = switched_hosts.run_job(args.build, args.rate, num_hosts, program)
    if algorithm:
        return [float(us) / 1e6 for us in re.findall(r"us ([\d.]+)", "".join(texts))]
    return switched_hosts.rounds_of(texts[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rate", default="200mbit", help="of each link, each way")
    parser.add_argument("--mib", type=int, default=4, help="that are summed")
    parser.add_argument("--hosts", default="2,4,8", help="workers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", metavar="NAME", help="keep the samples as the table NAME of docs/guide/benchmarks.md")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if reason := two_hosts.why_not():
        sys.exit(f"no hosts here: {reason}")
    os.environ.setdefault("HERD_TOKEN", os.urandom(16).hex())
    once = args.mib * 2**20 / (float(args.rate.removesuffix("mbit")) * 1e6 / 8)
    samples = []
    for workers in map(int, args.hosts.split(",")):
        for name, (factor, algorithm) in PATTERNS.items():
            samples.append({"workers": workers, "pattern": name, "rate": args.rate, "mib": args.mib,
                            "s": round(statistics.median(measure(args, workers, algorithm)), 4),
                            "equation_s": round(factor(workers) * once, 4)})
            print(json.dumps(samples[-1]), file=sys.stderr, flush=True)
    print(tables.markdown(*tables.topologies(samples)))
    if args.record:
        page.record(args.record, "topologies", samples)


main()
