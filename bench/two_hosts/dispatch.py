#!/usr/bin/env python3
"""Dispatch of tokens to experts on two hosts (network namespaces joined by a virtual cable): each token once to a host, or
each of its rows straight to its rank.

    python bench/two_hosts/dispatch.py [--build build/release] [--rate 1gbit] [--ranks 2] [--tokens 2048] [--width 512]
        [--experts 8] [--top-k 2] [--iterations 20] [--record two_hosts_dispatch] [--add]

Four ranks dispatch by turns, both ways in each iteration, under a router that chooses at random. Prints the medians in
ms, and how many times as fast tokens go once. Needs root. With --record the samples are kept as those of the table NAME
of docs/guide/benchmarks.md; with --add beside those that it has.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parents[1] / "scripts"), str(here.parent)]
import page  # noqa: E402
import tables  # noqa: E402
import two_hosts  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--rate", default="1gbit", help="of the cable, each way, as tc writes it; none: as fast as the machine copies")
parser.add_argument("--ranks", type=int, default=2, help="per host")
parser.add_argument("--tokens", type=int, default=2048, help="of a rank")
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--experts", type=int, default=8)
parser.add_argument("--top-k", type=int, default=2)
parser.add_argument("--iterations", type=int, default=20)
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
parser.add_argument("--add", action="store_true", help="to the samples that are kept")
args = parser.parse_args()
build = pathlib.Path(args.build).resolve()
os.environ.update(OMP_NUM_THREADS="1", HERD_TOKEN=os.urandom(16).hex())

if reason := two_hosts.why_not():
    print(f"skipped: {reason}")
    sys.exit(two_hosts.CANNOT)
with two_hosts.TwoHosts(None if args.rate == "none" else args.rate) as hosts:
    started = [hosts.start(node, [str(word) for word in (
        build / "herd", "run", "-n", args.ranks, "--nnodes", 2, "--node-rank", node, "--rendezvous",
        f"{hosts.addresses[0]}:29400", "--", build / "bench/two_hosts_dispatch", args.tokens, args.width, args.experts,
        args.top_k, args.iterations)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for node in (0, 1)]
    text = "".join(one.communicate(timeout=300)[0] for one in started)
if any(one.returncode for one in started):
    sys.exit(text)
sample = {"rate": args.rate, "ranks": args.ranks, "tokens": args.tokens, "width": args.width, "experts": args.experts,
          "top_k": args.top_k,
          **{f"{way}_us": [float(us) for us in re.findall(rf"{way} us ([\d.]+)", text)] for way in ("straight", "once")}}
samples = [*(page.recorded(args.record) if args.add else []), sample]
print(tables.markdown(*tables.two_hosts_dispatch([sample])))
if args.record:
    page.record(args.record, "two_hosts_dispatch", samples)
