#!/usr/bin/env python3
"""What strangers cost training: one job of two ranks on two hosts (network namespaces joined by a virtual cable), while
by turns nobody, idle and hostile strangers are at the ports of its launcher and its ranks.

    python bench/strangers/strangers.py [--build build/release] [--strangers 1000] [--rate 200] [--rounds 5]
        [--seconds 6] [--out strangers.jsonl]

idle: so many connect and say nothing; who is dropped comes back 10 s later. hostile: --rate connections a second, each
with a whole TLS 1.3 greeting without the key, a part of one, or something else, and so many of them are kept. The
strangers run on the job's own cores in place of machines of their own: what they take of a core is stated, and part of
what they do to the step time. elsewhere: the hostile ones, but at a port of a process that never takes anybody in,
which is what their own machine and the kernel cost here; the job's price is what the hostile ones add to it. Of each
turn the median step counts, and the processor time that the job's threads took for a step, in which they also wait for
each other: the strangers' own is not in it, nor what else the machine does. Each is compared with the turns without
strangers before and after it; the more of processor time is given as a share of the machine's cores, which is what it
adds to a step that keeps them all busy. What the threads took that listen is the price alone, on a busy machine too.
Needs root. JSONL, a line a turn, then the medians.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "scripts"))
import two_hosts  # noqa: E402

CROWD = r"""
import os, resource, select, signal, socket, ssl, sys, time
kind, address, most, rate, ports = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), [int(p) for p in sys.argv[5:]]
resource.setrlimit(resource.RLIMIT_NOFILE, (most + 100,) * 2)
into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = ssl.create_default_context().wrap_bio(into, out, server_hostname="herd")
try:
    tls.do_handshake()
except ssl.SSLWantReadError:
    pass
hello = out.read()
said = [hello, hello[:100], b"\x16", b"GET / HTTP/1.1\r\n\r\n", os.urandom(300)]
held, due, count, begin = [], [], 0, time.time()
ended, by_number = select.epoll(), {}  # waits in the kernel, so that idle strangers take nothing of the job's cores
running = True
def stop(*_):
    global running
    running = False
signal.signal(signal.SIGTERM, stop)
print("here", flush=True)
def dial():
    global count
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((address, ports[count % len(ports)]))
    if kind == "hostile":
        wait = select.poll()
        wait.register(one, select.POLLOUT)
        wait.poll(2)  # it stays shut where the listener's queue is full
        try:
            one.send(said[count // len(ports) % len(said)])
        except OSError:
            pass
    count += 1
    held.append(one)
    if kind == "idle":
        by_number[one.fileno()] = one
        ended.register(one, select.EPOLLIN)
    while len(held) > most:
        held.pop(0).close()
while running:
    now = time.time()
    if kind == "hostile":
        while running and count < rate * (time.time() - begin):
            dial()
        time.sleep(0.005)
        continue
    while due and due[0] < now:
        due.pop(0)
        dial()
    if count < most:
        for _ in range(min(20, most - count)):
            dial()
    for number, _ in ended.poll(0.05):
        one = by_number.pop(number)
        ended.unregister(one)
        one.close()
        held.remove(one)
        due.append(now + 10)
used = time.process_time()
print(count, used)
"""

ELSEWHERE = 29399
DEAF = f"""import socket, time
one = socket.create_server(('', {ELSEWHERE}), backlog=1024)  # as many as herd lets wait
print(flush=True)
time.sleep(1e6)"""
LISTENING = ("herd\n",)  # threads of launchers, which train nothing; ranks listen no more once all have met

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--strangers", type=int, default=1000)
parser.add_argument("--rate", type=float, default=200, help="hostile connections a second, over all ports")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--seconds", type=float, default=6, help="of a turn")
parser.add_argument("--out", default="strangers.jsonl")
args = parser.parse_args()
herd = str(pathlib.Path(args.build).resolve() / "herd")
folder = pathlib.Path(tempfile.mkdtemp(prefix="herd-bench-"))
os.environ.update(OMP_NUM_THREADS="1", HERD_TOKEN=os.urandom(16).hex())

RUN = f"""[model]
layers = 2
width = 96
heads = 4
context = 64
vocab = 1024
[data]
kind = "random"
[train]
steps = 1000000
batch = 8
micro_batch = 4
eval_every = 0
[checkpoint]
every = -1
[log]
name = "run"
dir = "{folder}"
"""


def metrics():
    try:
        return (folder / "run" / "metrics.jsonl").read_text().splitlines()[1:]
    except OSError:
        return []


def processes_of(name):
    return [int(pid) for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()]


def cpu_seconds(pids, names=("",)):
    """Of the threads that these processes have and that are named so, together, in user and system."""
    total = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            if (task / "comm").read_text().startswith(names):
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def turn(hosts, kind, pids, ports):
    crowd = None
    if kind != "nobody":
        what, where = ("hostile", [ELSEWHERE]) if kind == "elsewhere" else (kind, ports)
        crowd = hosts.start(1, [sys.executable, "-c", CROWD, what, hosts.addresses[0], str(args.strangers), str(args.rate),
                                *map(str, where)], stdout=subprocess.PIPE, text=True)
        crowd.stdout.readline()
        time.sleep(1.5)  # until the first of them are there
    steps, begin = len(metrics()), time.monotonic()
    cpu, listened_before = cpu_seconds(pids), cpu_seconds(pids, LISTENING)
    time.sleep(args.seconds)
    took, lines = time.monotonic() - begin, metrics()
    used, listened = cpu_seconds(pids) - cpu, cpu_seconds(pids, LISTENING) - listened_before
    entries = [json.loads(line) for line in lines[steps + 1:]]
    if len(entries) < 3:
        sys.exit(f"{len(entries)} steps in a turn: longer turns (--seconds), or the job has ended")
    line = {"kind": kind, "step_ms": statistics.median(entry["step_ms"] for entry in entries),
            "cpu_ms_a_step": 1e3 * used / (len(lines) - steps), "listening_cores": listened / took, "steps": len(entries),
            "seconds": took}
    if crowd:
        crowd.send_signal(signal.SIGTERM)
        count, seconds = crowd.communicate(timeout=30)[0].split()
        line |= {"connections": int(count), "strangers_core_share": float(seconds) / (took + 1.5)}
        time.sleep(1)  # until the last of them are gone
    return line


def costs(turns, kind):
    """Of each turn of this kind beside those of nobody before and after it: what it adds to the step time, as a share of
    it, and to the processor time of the job and of its threads that listen, as shares of the cores."""
    step, cores, listening = [], [], []
    for i, one in enumerate(turns):
        if one["kind"] == kind:
            calm = {what: (turns[i - 1][what] + turns[i + 1][what]) / 2
                    for what in ("step_ms", "cpu_ms_a_step", "listening_cores")}
            step.append(one["step_ms"] / calm["step_ms"] - 1)
            more_ms = (one["cpu_ms_a_step"] - calm["cpu_ms_a_step"]) * one["steps"]
            cores.append(more_ms / 1e3 / one["seconds"] / os.cpu_count())
            listening.append((one["listening_cores"] - calm["listening_cores"]) / os.cpu_count())
    return step, cores, listening


def spread(values):
    values = sorted(values)
    quarter = len(values) // 4
    return (f"{100 * statistics.median(values):+.1f} % (middle half {100 * values[quarter]:+.1f} to "
            f"{100 * values[-1 - quarter]:+.1f})")


def main():
    if why := two_hosts.why_not():
        print(why, file=sys.stderr)
        sys.exit(two_hosts.CANNOT)
    (folder / "run.toml").write_text(RUN)
    with two_hosts.TwoHosts() as hosts:
        job = [hosts.start(node, [herd, "train", str(folder / "run.toml"), "--ranks", "1", "--nnodes", "2", "--node-rank",
                                  str(node), "--rendezvous", f"{hosts.addresses[0]}:29400"],
                           stdout=open(folder / f"node{node}", "w"), stderr=subprocess.STDOUT) for node in (0, 1)]
        deadline = time.monotonic() + 120
        while len(metrics()) < 20:
            if time.monotonic() > deadline or any(one.poll() is not None for one in job):
                sys.exit("no training:\n" + (folder / "node0").read_text() + (folder / "node1").read_text())
            time.sleep(0.1)
        pids = [pid for name in hosts.names for pid in processes_of(name)]
        ports = sorted(hosts.listening(0))
        deaf = hosts.start(0, [sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
        deaf.stdout.readline()
        turns = [turn(hosts, "nobody", pids, ports)]
        for _ in range(args.rounds):
            for kind in ("idle", "nobody", "hostile", "nobody", "elsewhere", "nobody"):
                turns.append(turn(hosts, kind, pids, ports))
        deaf.kill()
        for one in job:
            one.send_signal(signal.SIGTERM)
        for one in job:
            one.wait(timeout=60)
    with open(args.out, "w") as out:
        for one in turns:
            out.write(json.dumps(one) + "\n")
    calm = [one for one in turns if one["kind"] == "nobody"]
    print(f"nobody: {statistics.median(one['step_ms'] for one in calm):.1f} ms a step, "
          f"{statistics.median(one['cpu_ms_a_step'] for one in calm):.1f} ms of CPU; {len(ports)} ports of host 0")
    for kind in ("idle", "hostile", "elsewhere"):
        own = [one for one in turns if one["kind"] == kind]
        rate = statistics.median(one["connections"] / (one["seconds"] + 1.5) for one in own)
        share = statistics.median(one["strangers_core_share"] for one in own)
        step, cores, listened = costs(turns, kind)
        print(f"{kind}: {rate:.0f} connections/s, which take {100 * share:.1f} % of a core themselves; the job takes "
              f"{spread(cores)} more of {os.cpu_count()} cores, its threads that listen {spread(listened)}; step time "
              f"{spread(step)}")
    shutil.rmtree(folder)


main()
