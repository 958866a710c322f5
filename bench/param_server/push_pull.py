#!/usr/bin/env python3
"""Push and pull of one worker and one server, processes with a core each of one host, beside a copy of one core.

    python bench/param_server/push_pull.py [--build build/release] [--record NAME]

Runs build/release/bench/push_pull, which says what it measures, and prints its table.
"""
import argparse
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import page  # noqa: E402
import tables  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--record", metavar="NAME", help="keep the samples as the table NAME of docs/guide/benchmarks.md")
args = parser.parse_args()
program = pathlib.Path(args.build).resolve() / "bench/push_pull"
done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
samples = [json.loads(line) for line in done.stdout.splitlines()]
print(tables.markdown(*tables.push_pull(samples)))
if args.record:
    page.record(args.record, "push_pull", samples)
