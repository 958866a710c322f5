#!/usr/bin/env python3
"""Rounds of push and pull on hosts of which each has a link of limited rate, beside BytePS' equation.

    python bench/param_server/hosts.py [--build build/release] [--rate 200mbit] [--mib 16] [--rounds 5]
        [--layouts "2 0;3 0;4 0;3 1"] [--record NAME]

A layout is the hosts that work (and serve), and those that only serve. Hosts are network namespaces on one switch; each
link is as fast in both directions. Prints the median of the rounds but the first, the equation's seconds and their ratio.
The rate counts frames, so a 25th of it is lost to headers. The hosts' TCP uses Reno: BBR, which some machines use, holds
each flow to the part of a link that it had last, and leaves a link idle where others have ended. Needs root.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parents[1] / "scripts"), str(here.parent)]
import page  # noqa: E402
import switched_hosts  # noqa: E402
import tables  # noqa: E402
import two_hosts  # noqa: E402


def seconds(args, workers, dedicated):
    """The median seconds of a round, but for the first."""
    program = [f"{args.build}/bench/round", str(dedicated), str(args.mib), str(args.rounds)]
    texts = switched_hosts.run_job(args.build, args.rate, workers + dedicated, program)
    return statistics.median(switched_hosts.rounds_of(texts[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--mib", type=int, default=16, help="of gradients, in keys of half a MiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layouts", default="2 0;3 0;4 0;3 1")
    parser.add_argument("--record", metavar="NAME", help="keep the samples as the table NAME of docs/guide/benchmarks.md")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if reason := two_hosts.why_not():
        sys.exit(f"no hosts here: {reason}")
    os.environ.setdefault("HERD_TOKEN", os.urandom(16).hex())
    rate = float(args.rate.removesuffix("mbit")) * 1e6 / 8  # bytes a second
    samples = []
    for layout in args.layouts.split(";"):
        workers, dedicated = map(int, layout.split())
        equation = 2 * workers * (workers - 1) / (workers**2 + dedicated * workers - 2 * dedicated) * args.mib * 2**20 / rate
        took = seconds(args, workers, dedicated)
        samples.append({"workers": workers, "dedicated": dedicated, "rate": args.rate, "mib": args.mib, "s": round(took, 4),
                        "equation_s": round(equation, 4)})
        print(json.dumps(samples[-1]), file=sys.stderr)
    print(tables.markdown(*tables.server_rounds(samples)))
    if args.record:
        page.record(args.record, "server_rounds", samples)


main()
