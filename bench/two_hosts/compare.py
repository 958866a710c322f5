#!/usr/bin/env python3
"""All-reduce of fp32 sums between two hosts (network namespaces joined by a virtual cable), herd against its peers.

    python bench/two_hosts/compare.py [--build build/release] [--python PYTHON] [--rate 1gbit] [--ranks 1]
        [--bytes 4KiB,64KiB,1MiB,16MiB,64MiB] [--rounds 5] [--peers raw,gloo,mpi,ucx] [--each] [--record NAME]

--ranks counts per host. In each round each contender runs once per size, in turn, so that whatever else the machine
does hits all alike. raw: two plain TCP connections, as many bytes each way at the same time as an all-reduce of two
ranks sends; ucx: ucx_perftest's one-way bandwidth of messages of that size. With --ranks 2 herd also runs a flat ring in
block and in cyclic order; with --each by each algorithm that it considers, and a line a size says how long its choice
takes beside the fastest. Needs root. Prints a table of medians in us with herd's ratio to each peer (above 1: herd is
faster). With --record its samples, one object a size and contender, are kept as bench/recorded/NAME.jsonl, and the table
is written into docs/guide/benchmarks.md.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "scripts"))
import two_hosts  # noqa: E402

sys.path.insert(0, str(here.parent))
import page  # noqa: E402
import tables  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--python", default=sys.executable, help="a Python with torch, for gloo")
parser.add_argument("--rate", default="none",
                    help="of the cable, each way, as tc writes it: 1gbit; none: as fast as the machine copies")
parser.add_argument("--ranks", type=int, default=1, help="per host")
parser.add_argument("--bytes", default="4KiB,64KiB,1MiB,16MiB,64MiB")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--budget", type=float, default=2**27, help="bytes per run and size; sets the iterations")
parser.add_argument("--peers", default="raw,gloo,mpi,ucx")
parser.add_argument("--each", action="store_true", help="herd also by each algorithm that it considers")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
args = parser.parse_args()
build = pathlib.Path(args.build).resolve()
scratch = pathlib.Path(tempfile.mkdtemp(prefix="herd-bench-"))
os.environ.update(OMP_NUM_THREADS="1", HERD_TOKEN=os.urandom(16).hex())


def parse_bytes(text):
    number, unit = re.fullmatch(r"(\d+)\s*([KMG]iB|B)?", text.strip()).groups()
    return int(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}.get(unit, 1)


def run(hosts, commands):
    """Starts [(node, command, environment)], returns the microseconds that they print."""
    started = [hosts.start(node, [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, env={**os.environ, **more}) for node, command, more in commands]
    texts = [one.communicate(timeout=300) for one in started]
    if any(one.returncode for one in started):
        sys.exit(f"failed: {commands[0][1]}\n" + "\n".join(out + err for out, err in texts))
    return [float(us) for out, _ in texts for us in re.findall(r"us ([\d.]+)", out)]


def herd(*more):
    def contender(hosts, size, n):
        return run(hosts, [(node, [build / "herd", "run", "-n", args.ranks, "--nnodes", 2, "--node-rank", node,
                                   "--rendezvous", f"{hosts.addresses[0]}:29400", "--", build / "bench/two_hosts_all_reduce",
                                   size, n, *more], {}) for node in (0, 1)])
    return contender


def gloo(hosts, size, n):
    world = 2 * args.ranks
    return run(hosts, [(rank // args.ranks, [args.python, here / "gloo_all_reduce.py", size, n],
                        {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": hosts.addresses[0],
                         "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": hosts.interfaces[rank // args.ranks]})
                       for rank in range(world)])


def open_mpi(hosts, size, n):
    agent = scratch / "agent"  # what Open MPI takes for ssh
    agent.write_text(f'#!/bin/sh\nhost=$1\nshift\nexec ip netns exec {hosts.names[1]} unshare --uts '
                     f'sh -c "hostname node1; $*"\n')
    agent.chmod(0o755)
    where = ",".join(f"{address}:{args.ranks}" for address in hosts.addresses)
    network = [word for kind in ("oob", "btl") for word in ("--mca", f"{kind}_tcp_if_include", "10.231.7.0/24")]
    return run(hosts, [(0, ["unshare", "--uts", "sh", "-c", 'hostname node0; exec "$@"', "sh", "mpirun",
                            "--allow-run-as-root", "--bind-to", "none", "--oversubscribe", "-n", 2 * args.ranks, "--host",
                            where, "--mca", "plm_rsh_agent", agent, "--mca", "pml", "ob1", "--mca", "btl",
                            "tcp,self,vader", *network, build / "bench/two_hosts_mpi", size, n], {})])


def raw(hosts, size, n):
    if size < 2**20:
        return []
    return run(hosts, [(node, [sys.executable, here / "raw_tcp.py", node, hosts.addresses[0], size, n], {})
                       for node in (0, 1)])


def ucx(hosts, size, n):
    settings = {"UCX_TLS": "tcp,self", "UCX_LOG_LEVEL": "fatal", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    words = ["ucx_perftest", "-t", "tag_bw", "-s", str(size), "-n", str(max(20, n)), "-e", "-f", "-v"]
    server = hosts.start(0, words, env={**os.environ, **settings}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    text = ""
    for _ in range(20):
        text = hosts.start(1, [*words, hosts.addresses[0]], env={**os.environ, **settings}, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True).communicate(timeout=120)[0]
        if "," in text:
            break
    server.wait(timeout=10)
    return [float(text.strip().splitlines()[-1].split(",")[3])]


contenders = {"herd": herd("")}
if args.ranks > 1:
    contenders.update({"herd, block ring": herd("ring"), "herd, cyclic ring": herd("ring", "cyclic")})
each = {}
if args.each:
    shown = subprocess.run([build / "herd", "explain", "all_reduce", "--bytes", "1MiB", "--json", "--ranks", str(2 * args.ranks),
                            "--topology", f"hosts:2x{args.ranks}"], capture_output=True, text=True, check=True).stdout
    each = {f"herd, {one['algorithm']}": herd(one["algorithm"])
            for one in json.loads(shown)["candidates"] if "us" in one and "why_not" not in one}
peers = {"raw": raw, "gloo": gloo, "mpi": open_mpi, "ucx": ucx}
for name in filter(None, args.peers.split(",")):
    if name == "mpi":
        if not shutil.which("mpicc"):
            print("no Open MPI")
            continue
        (build / "bench").mkdir(exist_ok=True)
        subprocess.run(["mpicc", "-O2", "-o", build / "bench/two_hosts_mpi",
                        here / "mpi_all_reduce.c"], check=True)
    if name == "ucx" and not shutil.which("ucx_perftest"):
        print("no ucx_perftest (package ucx-utils)")
        continue
    contenders[name] = peers[name]

if reason := two_hosts.why_not():
    print(f"two_hosts: skipped: {reason}")
    sys.exit(two_hosts.CANNOT)
sizes = [parse_bytes(text) for text in args.bytes.split(",")]
times = {(size, name): [] for size in sizes for name in [*contenders, *each]}
with two_hosts.TwoHosts(rate=None if args.rate == "none" else args.rate) as hosts:
    for _ in range(args.rounds):
        for size in sizes:
            for name, contender in {**contenders, **each}.items():
                times[size, name] += contender(hosts, size, max(4, min(1000, int(args.budget) // size)))
shutil.rmtree(scratch)

medians = {key: statistics.median(values) for key, values in times.items() if values}
samples = [{"op": "all_reduce", "hosts": 2, "ranks": 2 * args.ranks, "bytes": size, "peer": name, "each": name in each,
            "rate": args.rate, "us_min": round(min(times[size, name]), 3), "us_median": round(median, 3),
            "algbw_GBps": round(size / median / 1e3, 4)} for (size, name), median in medians.items()]
print(tables.markdown(*tables.two_hosts(samples)))
for size in sizes if each else []:
    fastest = min(each, key=lambda name: medians[size, name])
    print(f"{size} bytes: the choice takes {medians[size, 'herd'] / medians[size, fastest]:.2f} of the fastest of "
          f"{len(each)} algorithms ({fastest.split(', ')[1]}, {medians[size, fastest]:.1f} us)")
if args.record:
    page.record(args.record, "two_hosts", samples)
