#!/usr/bin/env python3
"""herd on two hosts for real, as far as herd can tell: two network namespaces joined by a virtual cable.

  two_hosts_test.py CASE BUILD      CASE: one of the functions below; status 77 = this machine can't
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "scripts"))
import two_hosts  # noqa: E402

case, build = sys.argv[1], pathlib.Path(sys.argv[2])
herd = str(build / "herd")
folder = pathlib.Path(tempfile.mkdtemp(prefix="herd-two-hosts-"))
os.environ.update(HERD_TOKEN=os.urandom(16).hex(), OMP_NUM_THREADS="1")


def check(condition, what, output=""):
    if not condition:
        sys.exit(f"{case}: {what}\n{output}")


def output_of(node):
    return (folder / f"node{node}").read_text(errors="replace")


def start(hosts, node, command):
    with open(folder / f"node{node}", "w") as out:
        return hosts.start(node, command, stdout=out, stderr=subprocess.STDOUT)


def both(hosts, command, seconds=100):
    """Runs command(node) on both nodes, to the end; their outputs together."""
    started = [start(hosts, node, command(node)) for node in (0, 1)]
    statuses = [one.wait(timeout=seconds) for one in started]
    check(statuses == [0, 0], f"ended with {statuses}", output_of(0) + output_of(1))
    return output_of(0) + output_of(1)


def under_herd_run(hosts, ranks, program, more=()):
    return lambda node: [herd, "run", "-n", str(ranks), "--nnodes", "2", "--node-rank", str(node), "--rendezvous",
                         f"{hosts.addresses[0]}:29400", *more, "--", *program]


def results(text):
    """What `herd bench --json` has printed."""
    return [json.loads(line[line.index("{"):]) for line in text.splitlines() if '"op"' in line]


def all_reduce(hosts):
    text = both(hosts, under_herd_run(hosts, 2, [str(build / "examples/all_reduce")]))
    check_sums(text)


def check_sums(text):
    check(len(re.findall(r"rank \d of 4 has \[4, 2, 6\]", text)) == 4, "not the sums of four ranks", text)


def bench(hosts):
    text = both(hosts, under_herd_run(hosts, 2, [herd, "bench", "all_reduce", "--bytes", "1KiB,1MiB", "--seconds", "0.2",
                                                 "--json"]))
    lines = results(text)
    check([line["bytes"] for line in lines] == [1024, 2**20], "no results", text)
    check(all(line["ranks"] == 4 for line in lines), "not 4 ranks", text)
    check(all(line["transport"] == "shm+tcp" for line in lines), "not over shm and tcp", text)


def trusted(hosts):
    """A network that all ranks trust is UCX's; what only one of them trusts is refused before anything is sent."""
    command = under_herd_run(hosts, 1, [herd, "bench", "all_reduce", "--bytes", "1KiB", "--seconds", "0.1", "--json"])
    os.environ["HERD_TRUSTED_NETWORK"] = "1"
    text = both(hosts, command)
    check([line["transport"] for line in results(text)] == ["ucx"], "not over ucx", text)
    one = ["sh", "-c", 'HERD_TRUSTED_NETWORK=$HERD_NODE_RANK exec "$@"', "sh"]
    os.environ["HERD_TRUSTED_NETWORK"] = "0"
    started = [start(hosts, node, under_herd_run(hosts, 1, [*one, herd, "bench", "all_reduce"])(node)) for node in (0, 1)]
    statuses = [one.wait(timeout=60) for one in started]
    text = output_of(0) + output_of(1)
    check(all(status != 0 for status in statuses), f"ended with {statuses}", text)
    check("rank 1 takes the network for a trusted one, rank 0 does not" in text, "does not say who differs", text)


STRANGERS = r"""
import socket, struct, sys, threading, time
address, seconds, ports, held = sys.argv[1], float(sys.argv[2]), [int(one) for one in sys.argv[3:]], []
# Greets as ZeroMQ does and announces a command of 60 MB (four send most of it), begins a TLS handshake, asks for a page, says nothing.
greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01CURVE".ljust(54, b"\0")
said = [greeting + b"\x06" + struct.pack(">Q", 60 << 20) + b"x" * 4000, b"\x16\x03\x01\x3f\xff" + b"\1" * 300, b"GET / HTTP/1.1\r\n\r\n",
        b""]
end, count = time.time() + seconds, 0

def hog(port):
    try:
        one = socket.create_connection((address, port), timeout=5)
        one.sendall(said[0] + bytes(59 << 20))
        time.sleep(seconds)
    except OSError:
        pass

for port in ports:
    for _ in range(4):
        threading.Thread(target=hog, args=(port,), daemon=True).start()
while time.time() < end or count < 1000 and time.time() < end + 60:
    for port in ports:
        try:
            one = socket.create_connection((address, port), timeout=1)
            one.setblocking(False)
            one.send(said[count % 4])
            held.append(one)
        except OSError:
            pass
        count += 1
    for one in held[:-1000]:
        one.close()
    del held[:-1000]
    time.sleep(0.002)
print("connections", count)
"""


def resident_mb(pid):
    """0 for a process that has ended."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int((re.search(r"VmRSS:\s*(\d+) kB", status) or [0, 0])[1]) / 1024


def rank_of(hosts, node):
    """The process of the one rank on a host, which `herd run` starts there; None before that."""
    for pid in subprocess.run(["ip", "netns", "pids", hosts.names[node]], capture_output=True, text=True).stdout.split():
        try:
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"{herd}\0bench\0".encode()):
                return int(pid)
        except FileNotFoundError:
            pass
    return None


def strangers(hosts):
    """Some thousand connections without the token to every port of a job: nothing ends, and little memory goes."""
    command = under_herd_run(hosts, 1, [herd, "bench", "all_reduce", "--bytes", "1MiB", "--seconds", "12"])
    started = [start(hosts, node, command(node)) for node in (0, 1)]
    deadline, ports = time.time() + 60, set()
    while (rank := rank_of(hosts, 1)) is None and time.time() < deadline:
        pass
    while len(ports) < 2 and time.time() < deadline:  # of its store and of its rank, until all ranks have met
        os.kill(rank, signal.SIGSTOP)  # they would meet within milliseconds, which may lie between two looks
        ports |= hosts.listening(0)
        os.kill(rank, signal.SIGCONT)
        time.sleep(0.002)
    check(len(ports) >= 2, "a job listens at its store and its ranks", output_of(0))
    while len(hosts.listening(0)) > 1 and time.time() < deadline:
        time.sleep(0.05)
    check(len(hosts.listening(0)) == 1, "a rank listens on though all have met", output_of(0))
    time.sleep(1)  # into the benchmark
    before = resident_mb(started[0].pid)
    with open(folder / "strangers", "w") as out:
        crowd = hosts.start(1, [sys.executable, "-c", STRANGERS, hosts.addresses[0], "5", *map(str, ports)], stdout=out,
                            stderr=subprocess.STDOUT)
    most = before
    while crowd.poll() is None:
        most = max(most, resident_mb(started[0].pid))
        time.sleep(0.05)
    said = (folder / "strangers").read_text()
    check(int((re.search(r"connections (\d+)", said) or [0, "0"])[1]) >= 1000, "too few strangers", said)
    statuses = [one.wait(timeout=60) for one in started]
    text = output_of(0) + output_of(1)
    check(statuses == [0, 0], f"ended with {statuses}", text)
    check(most - before < 20, f"strangers took {most - before:.0f} MB of the launcher", text)
    print(f"{said.strip()} to ports {ports}: {most - before:.1f} MB of the launcher")


def tune(hosts):
    """What 2 x 2 ranks measure overrides the model for 2 x 2 ranks, and for no others."""
    file = folder / "tuning"
    bench = [herd, "bench", "all_reduce", "--bytes", "64KiB", "--seconds", "0.05"]
    text = both(hosts, under_herd_run(hosts, 2, [*bench, "--tune", str(file)]))
    head, machine, *lines = file.read_text().splitlines()
    check(head == "herd-tuning 2" and machine.startswith("machine ") and len(lines) == 1, "no tuning", text + str(lines))
    words = lines[0].split()
    check(words[:4] == ["all_reduce", "2x2", "ordinary", "65536"], f"measured something else: {lines}", text)
    explained = subprocess.run([herd, "explain", "all_reduce", "--bytes", "64KiB", "--ranks", "4", "--topology",
                                "hosts:2x2", "--tuning", str(file)], capture_output=True, text=True).stdout
    check(re.search(f"choice: {words[4]}: .* measured at 64 KiB, which overrides the model", explained), "not shown",
          explained)

    def chosen(ranks, tuning):
        os.environ["HERD_TUNING"] = tuning
        return results(both(hosts, under_herd_run(hosts, ranks, [*bench, "--json"])))[0]["algorithm"]

    model = {ranks: chosen(ranks, "") for ranks in (1, 2)}
    words[4] = next(name for name in ("naive", "ring", "recursive_doubling") if name not in model.values())
    file.write_text(f"{head}\n{machine}\n{' '.join(words)}\n")
    check(chosen(2, str(file)) == words[4], f"the model chose for 2 x 2 ranks, not {words[4]}", output_of(0))
    check(chosen(1, str(file)) == model[1], "what 2 x 2 ranks measured counts for 2 x 1", output_of(0))


def topology(hosts):
    """Ranks of 2 x 2 hosts on topologies that they are given; bench checks every element."""
    for name, ops in (("hosts:2x2", {"all_reduce": "hierarchical", "all_gather": "", "all_to_all": ""}),
                      ("torus:2x2", {"all_reduce": "torus_2d", "reduce_scatter": "", "broadcast": ""}),
                      ("racks:2x2x1", {"all_reduce": "torus_2d", "all_to_all": ""})):
        for op, algorithm in ops.items():
            program = [herd, "bench", op, "--bytes", "64KiB", "--seconds", "0.05", "--json",
                       *(["--algorithm", algorithm] if algorithm else [])]
            text = both(hosts, under_herd_run(hosts, 2, program, ["--topology", name]))
            lines = results(text)
            check(len(lines) == 1 and lines[0]["wrong"] == 0 and lines[0]["ranks"] == 4, f"{name}: wrong {op}", text)
            check(not algorithm or lines[0]["algorithm"] == algorithm, f"{name}: not {algorithm}", text)
    together = folder / "cyclic"
    together.write_text("herd-topology 1\nhosts 2 ranks 2 cores 2\nplacement 0 1 0 1\n")
    command = under_herd_run(hosts, 2, [herd, "bench", "all_reduce", "--bytes", "64KiB"], ["--topology", str(together)])
    started = [start(hosts, node, command(node)) for node in (0, 1)]
    statuses = [one.wait(timeout=60) for one in started]
    text = output_of(0) + output_of(1)
    check(all(status != 0 for status in statuses) and "kBadConfig" in text, "ranks of two hosts on one", text)


def killed_rank(hosts):
    command = under_herd_run(hosts, 2, [herd, "bench", "all_reduce", "--bytes", "4MiB", "--seconds", "60"])
    started = [start(hosts, node, command(node)) for node in (0, 1)]
    deadline, ranks = time.time() + 30, []
    while not ranks and time.time() < deadline:
        time.sleep(0.05)
        pids = subprocess.run(["ip", "netns", "pids", hosts.names[1]], capture_output=True, text=True).stdout.split()
        ranks = [int(pid) for pid in pids if "HERD_RANK=3" in environment(pid)]
    check(len(ranks) == 1, "rank 3 never came", output_of(0) + output_of(1))
    time.sleep(2)  # into the benchmark
    begin = time.time()
    os.kill(ranks[0], signal.SIGKILL)
    statuses = [one.wait(timeout=20) for one in started]
    text = output_of(0) + output_of(1)
    check(time.time() - begin < 8, "the job outlived rank 3", text)
    check(all(status != 0 for status in statuses), f"ended with {statuses}", text)
    check("rank 3 is lost" in text or "rank 3" in text and "signal 9" in text, "nobody names rank 3", text)


def environment(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def write_run_file():
    run = folder / "run.toml"
    run.write_text(f'''[model]
layers = 2
width = 32
heads = 2
context = 16
vocab = 300
[data]
kind = "random"
[train]
steps = 8
batch = 8
micro_batch = 2
eval_every = 0
[optimizer]
lr = 3e-3
[log]
dir = "{folder}/runs"
''')
    return run


def train(hosts):
    """2 hosts x 2 ranks give the losses of one rank."""
    run = write_run_file()
    alone = subprocess.run([herd, "train", run, "--ranks", "1", "log.name=one"], capture_output=True, text=True)
    check(alone.returncode == 0, "one rank fails", alone.stdout + alone.stderr)
    both(hosts, lambda node: [herd, "train", str(run), "--ranks", "2", "--nnodes", "2", "--node-rank", str(node),
                              "--rendezvous", f"{hosts.addresses[0]}:29400", "log.name=four"])
    one, four = losses("one"), losses("four")
    check(len(one) == 8 and len(four) == 8, f"{len(one)} and {len(four)} steps instead of 8")
    worst = max(abs(a - b) for a, b in zip(one, four))
    check(worst < 2e-4, f"losses differ by {worst}: {one} and {four}")


def unshared(hosts):
    """Two hosts that each have a folder of that name are told before the first step, and keep no probe file."""
    run = write_run_file()
    (folder / "runs").mkdir()
    own = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs tmpfs {folder}/runs && \"$@\"; status=$?; ls {folder}/runs/run; exit $status",
           "sh"]
    command = lambda node: (own if node == 1 else []) + [  # noqa: E731
        herd, "train", str(run), "--ranks", "2", "--nnodes", "2", "--node-rank", str(node), "--rendezvous",
        f"{hosts.addresses[0]}:29400", "log.name=run"]
    started = [start(hosts, node, command(node)) for node in (0, 1)]
    statuses = [one.wait(timeout=100) for one in started]
    text = output_of(0) + output_of(1)
    check(statuses == [2, 2], f"ended with {statuses}", text)
    check(re.search(r"kBadConfig: all ranks write into one folder, \S+/runs/run, but rank 0 on host \S+ sees no file there "
                    r"of ranks 2, 3 on host", text), "does not name ranks, hosts and folder", text)
    check("fix: log.dir on a file system that all hosts have" in text and "step 1/" not in text, "no fix, or steps", text)
    check("probe-" not in output_of(1) + str(list((folder / "runs/run").iterdir())), "probe files stay", text)


def losses(name):
    lines = (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
    return [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]


def bert(hosts):
    """The BERT ring example on 2 hosts x 4 ranks."""
    check_bert(both(hosts, under_herd_run(hosts, 4, [str(build / "examples/bert_ring")]), 240), 8)


def lecture(name):
    """The BERT of the lecture, for a few steps."""
    return [str(build / "examples/bert_lecture"), str(root / "examples/bert_lecture.toml"), f"log.dir={folder}/runs",
            f"log.name={name}", "train.steps=4", "train.batch=8", "train.micro_batch=2", "optimizer.lr=1e-3"]


def check_lecture(name, one):
    several = losses(name)
    check(len(one) == 4 and len(several) == 4, f"{len(one)} and {len(several)} steps instead of 4")
    check(max(abs(a - b) for a, b in zip(one, several)) < 1e-5 and several[-1] < 0.7 * several[0], f"losses {one} and {several}")


def bert_lecture(hosts):
    """The BERT of the lecture on 2 hosts x 4 ranks, data parallel and in a pipeline, has the losses of one rank."""
    alone = subprocess.run(lecture("one"), capture_output=True, text=True)
    check(alone.returncode == 0, "one rank fails", alone.stdout + alone.stderr)
    both(hosts, under_herd_run(hosts, 4, lecture("eight")), 200)
    check_lecture("eight", losses("one"))
    both(hosts, under_herd_run(hosts, 4, [*lecture("piped"), "mesh.pp=2", "strategy.zero=1"]), 200)
    check_lecture("piped", losses("one"))
    both(hosts, lambda node: [
        python_with_torch(), "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
        "--rdzv-backend=c10d", "--rdzv-endpoint", f"{hosts.addresses[0]}:29500", "--rdzv-id", "lecture",
        "--rdzv-conf", f"is_host={1 - node}", "--local-addr", hosts.addresses[node], "--no-python",
        *lecture("torchrun")], 200)
    check_lecture("torchrun", losses("one"))


def check_bert(text, ranks):
    right = [float(value) for value in re.findall(r"accuracy ([0-9.]+)", text)]
    check(len(right) == ranks and min(right) > 0.9, f"accuracies {right}", text)


def examples():
    """Those that are built, each with what is checked of its output by 2 x 2 ranks."""
    yield build / "examples/all_reduce", check_sums
    if (build / "examples/bert_ring").exists():
        yield build / "examples/bert_ring", lambda text: check_bert(text, 4)


def python_with_torch():
    pythons = [os.environ.get("HERD_TORCH_PYTHON"), root / ".venv/bin/python", sys.executable]
    pythons = [str(python) for python in pythons if python and shutil.which(python)]
    python = next((python for python in pythons if
                   subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0), None)
    if not python:
        print(f"skipped: none of {', '.join(pythons)} has torch (HERD_TORCH_PYTHON names one that has)")
        sys.exit(two_hosts.CANNOT)
    return python


def torchrun(hosts):
    python = python_with_torch()
    for example, check_output in examples():
        check_output(both(hosts, lambda node: [
            python, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "2",
            "--master-addr", hosts.addresses[0], "--master-port", "29500", "--no-python", str(example)]))


RANK_OF_PYTORCH = """
import datetime, torch, torch.distributed as dist
import herd_torch
dist.init_process_group("herd", timeout=datetime.timedelta(seconds=15))
x = torch.full((100000,), float(dist.get_rank()))
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has {x.mean().item()}", flush=True)
dist.destroy_process_group()
"""


def program_of_pytorch():
    """Returns the command of a PyTorch program over herd that knows no launcher; none where herd has no Python package."""
    if not (build / "python/herd_torch").exists():
        return []
    os.environ["PYTHONPATH"] = str(build / "python")
    program = folder / "program.py"
    program.write_text(RANK_OF_PYTORCH)
    return [python_with_torch(), str(program)]


def check_sums_of_pytorch(text):
    check(len(re.findall(r"rank \d of 4 has 6.0", text)) == 4, "not the sums of four ranks", text)


def pytorch(hosts):
    """A PyTorch program over herd: whoever reaches its store can read and write it, but only the job's secret lets in."""
    python, program = program_of_pytorch()
    token = os.environ.pop("HERD_TOKEN")

    def ranks(token_of):
        return lambda node: [
            "env", *([f"HERD_TOKEN={token_of(node)}"] if token_of(node) else []), python, "-m", "torch.distributed.run",
            "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "2", "--master-addr", hosts.addresses[0],
            "--master-port", "29500", program]

    def refused(token_of, words):
        started = [start(hosts, node, ranks(token_of)(node)) for node in (0, 1)]
        statuses = [one.wait(timeout=90) for one in started]
        text = output_of(0) + output_of(1)
        check(0 not in statuses and " has " not in re.sub(r"(?m)^(?!rank \d of).*$", "", text), f"joined: {statuses}", text)
        check(words in text, f"no {words!r}", text)

    check_sums_of_pytorch(both(hosts, ranks(lambda node: token)))
    refused(lambda node: token if node == 0 else os.urandom(16).hex(), "HERD_TOKEN")
    refused(lambda node: "", "HERD_TOKEN_FILE")


def mpirun(hosts):
    if not shutil.which("mpirun"):
        print("skipped: no mpirun (package openmpi-bin)")
        sys.exit(two_hosts.CANNOT)
    agent = folder / "agent"  # what Open MPI takes for ssh
    agent.write_text(f'''#!/bin/sh
[ "$1" = {hosts.addresses[0]} ] && name={hosts.names[0]} || name={hosts.names[1]}
host=$1
shift
exec ip netns exec "$name" unshare --uts sh -c "hostname node-$host; $*"
''')
    agent.chmod(0o755)
    where = ",".join(f"{address}:2" for address in hosts.addresses)
    network = ["--mca", "oob_tcp_if_include", "10.231.7.0/24", "--mca", "btl_tcp_if_include", "10.231.7.0/24"]
    # Node 0 must not be known by the name that node 1 has, too.
    mpi = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "4", "--host", where, "--mca",
           "plm_rsh_agent", str(agent), *network, "-x", "HERD_TOKEN", "-x",
           f"HERD_RENDEZVOUS={hosts.addresses[0]}:29400"]
    commands = [([str(example)], check_output) for example, check_output in examples()]
    if command := program_of_pytorch():
        mpi += ["-x", "PYTHONPATH"]
        commands.append((command, check_sums_of_pytorch))
    for command, check_output in commands:
        started = start(hosts, 0, ["unshare", "--uts", "sh", "-c", 'hostname node0; exec "$@"', "sh", *mpi, *command])
        status = started.wait(timeout=60)
        check(status == 0, f"ended with {status}", output_of(0))
        check_output(output_of(0))


SLURM = """ClusterName=herd
SlurmctldHost=node0({address0})
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthInfo=socket={folder}/munge.socket
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName=node0 NodeAddr={address0} CPUs=2
NodeName=node1 NodeAddr={address1} CPUs=2
PartitionName=all Nodes=ALL Default=YES
"""


def slurm(hosts):
    """A job under a real slurmctld, two slurmd and munge. Opt-in: HERD_SLURM_TEST=1."""
    programs = [name for name in ("munged", "slurmctld", "slurmd", "srun") if not shutil.which(name)]
    if not os.environ.get("HERD_SLURM_TEST") or programs:
        print("skipped: " + (f"no {programs} (packages munge slurmctld slurmd slurm-client)" if programs else
                             "HERD_SLURM_TEST=1 asks for it"))
        sys.exit(two_hosts.CANNOT)
    folder.chmod(0o755)
    for name in ("state", "spool-node0", "spool-node1"):
        (folder / name).mkdir()
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
        f"{address} node{node}\n" for node, address in enumerate(hosts.addresses)))
    (folder / "slurm.conf").write_text(SLURM.format(folder=folder, address0=hosts.addresses[0],
                                                    address1=hosts.addresses[1]))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # a namespace's /sys has none to find out from
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}

    def on(node, command, **options):  # with a name of its own, and both names known
        script = f'mount --bind {folder}/hosts /etc/hosts; hostname node{node}; exec "$@"'
        return hosts.start(node, ["unshare", "--uts", "--mount", "sh", "-c", script, "sh", *command], env=environment,
                           **options)

    munged = subprocess.Popen(["munged", "--foreground", "--force", f"--key-file={folder}/munge.key",
                               f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid",
                               f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munge.log"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.time() + 20
        while not (folder / "munge.socket").exists() and time.time() < deadline:
            time.sleep(0.05)
        on(0, ["slurmctld", "-D"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for node in (0, 1):
            on(node, ["slurmd", "-D"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        job = ["srun", "-N", "2", "-n", "4", "--ntasks-per-node", "2", str(build / "examples/all_reduce")]
        text = ""
        while "of 4 has" not in text and time.time() < deadline + 20:  # until the nodes have registered
            time.sleep(0.5)
            ran = on(0, ["timeout", "25", *job], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            text = ran.communicate()[0]
        logs = "".join(path.read_text()[-2000:] for path in folder.glob("slurm*.log"))
        check_sums(text if "of 4 has" in text else text + logs)
        if command := program_of_pytorch():
            srun = ["timeout", "60", *job[:-1], *command]
            ran = on(0, ["env", f"PYTHONPATH={os.environ['PYTHONPATH']}", *srun], stdout=subprocess.PIPE,
                     stderr=subprocess.STDOUT, text=True)
            check_sums_of_pytorch(ran.communicate()[0])
    finally:
        munged.terminate()
        munged.wait()


def main():
    if reason := two_hosts.why_not():
        print(f"skipped: {reason}")
        sys.exit(two_hosts.CANNOT)
    try:
        with two_hosts.TwoHosts() as hosts:
            globals()[case](hosts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
