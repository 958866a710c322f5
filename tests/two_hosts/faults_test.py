#!/usr/bin/env python3
"""What ends or stops one of two hosts: launcher, ranks or all of it; their cable; their folders; their options.

  faults_test.py BUILD [CASE ...]      CASE: of `cases()`; status 77 = this machine can't

Each case states what both launchers say, and how soon. Some cases by default; all with HERD_FULL_TESTS=1. HERD_BUILD=OTHER
takes the programs of another build, such as one without a fix.
"""
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

build = pathlib.Path(os.environ.get("HERD_BUILD", sys.argv[1]))
herd, program = str(build / "herd"), str(build / "tests/launch_rank_program")
folder = pathlib.Path(tempfile.mkdtemp(prefix="herd-faults-"))
os.environ.update(HERD_TOKEN=os.urandom(16).hex(), OMP_NUM_THREADS="1", HERD_NETWORK="")
DEADLINE = 3  # seconds that a barrier of the ranks may take
FOREVER = 10_000  # steps


class Failed(Exception):
    pass


class Job:
    """One job on both hosts, one rank on each unless asked for more."""
    port = 29400

    def __init__(self, hosts, name):
        Job.port += 1
        self.hosts, self.name, self.nodes = hosts, name, [None, None]

    def output(self, node):
        return (folder / f"{self.name}.{node}").read_text(errors="replace")

    def outputs(self):
        return "".join(f"--- node {node}\n{self.output(node)}" for node in (0, 1))

    def start(self, node, options=(), command=None, before=(), deadline=DEADLINE, steps=FOREVER, host=None, ranks=1):
        where = ["--nnodes", "2", "--node-rank", str(node), "--rendezvous", f"{host or self.hosts.addresses[0]}:{self.port}"]
        command = command or [herd, "run", *where, "-n", str(ranks), *options, "--", program, "steps", f"{deadline}/{steps}"]
        if "train" in command:
            command = [*command, *where]
        with open(folder / f"{self.name}.{node}", "a") as out:
            self.nodes[node] = self.hosts.start(node, [*before, *command], stdout=out, stderr=subprocess.STDOUT)

    def start_both(self, **options):
        for node in (0, 1):
            self.start(node, **options)
        self.wait_for_steps()

    def wait_for_steps(self, times=1):
        for node in (0, 1):
            self.wait_for(node, "takes steps", times=times)

    def wait_for(self, node, text, seconds=40, times=1):
        until = time.time() + seconds
        while self.output(node).count(text) < times:
            if time.time() > until:
                raise Failed(f'node {node} never says "{text}"')
            time.sleep(0.02)

    def processes(self, node):
        """Pids on the host: those whose command line holds `herd run` first, then the others."""
        pids = subprocess.run(["ip", "netns", "pids", self.hosts.names[node]], capture_output=True, text=True).stdout
        return [int(pid) for pid in pids.split()]

    def ranks(self, node):
        return [pid for pid in self.processes(node) if command_of(pid).startswith(program)]

    def launcher(self, node):
        return self.nodes[node].pid  # ip netns exec becomes its command

    def signal(self, pids, number):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def ends(self, node, says, seconds, status=None):
        """The launcher of the node ends within the time and says so; `status` None = any but 0."""
        left = self.fault + seconds - time.time()
        try:
            got = self.nodes[node].wait(timeout=max(left, 0.1))
        except subprocess.TimeoutExpired:
            raise Failed(f"node {node} has not ended {seconds} s after the fault") from None
        if got == 0 if status is None else got != status:
            raise Failed(f"node {node} ended with status {got}")
        self.says(node, says)

    def says(self, node, *patterns):
        for pattern in patterns:
            if not re.search(pattern, self.output(node)):
                raise Failed(f'node {node} does not say "{pattern}"')

    def happened(self):
        self.fault = time.time()


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill_launcher(job, node):
    job.start_both()
    job.happened()
    job.signal([job.launcher(node)], signal.SIGKILL)
    job.ends(1 - node, f"herd run: the job failed: node {node} is gone", 8)


def kill_node(job, node):
    job.start_both()
    job.happened()
    job.signal(job.processes(node), signal.SIGKILL)
    job.ends(1 - node, f"herd run: the job failed: node {node} is gone", 8)


def kill_rank(job, node):
    job.start_both()
    job.happened()
    job.signal(job.ranks(node), signal.SIGKILL)
    for each in (0, 1):
        job.ends(each, rf"herd run: the job failed: rank {node} \(process \d+\) was killed by signal 9", 8, 128 + 9)


def stop_launcher(job, node):
    """A stopped launcher stops no job."""
    job.start_both(steps=150)
    job.happened()
    job.signal([job.launcher(node)], signal.SIGSTOP)
    time.sleep(4)
    job.signal([job.launcher(node)], signal.SIGCONT)
    for each in (0, 1):
        job.ends(each, "took all steps", 30, 0)


def stop_rank(job, node):
    job.start_both()
    job.happened()
    job.signal(job.ranks(node), signal.SIGSTOP)
    for each in (0, 1):
        job.ends(each, rf"the job failed: .*; rank {node} \(.*\) had sent nothing for \d s", 2 * DEADLINE + 7)
    job.says(1 - node, "it is stopped")


def stop_node(job, node):
    job.start_both()
    job.happened()
    stopped = job.processes(node)
    job.signal(stopped, signal.SIGSTOP)
    job.ends(1 - node, f"herd run: the job failed: node {node} is silent", 2 * DEADLINE + 4)
    job.happened()
    job.signal(stopped, signal.SIGCONT)
    job.ends(node, f"herd run: the job failed: node {1 - node} is gone", 10)


def cut_cable(job, node):
    job.start_both()
    job.happened()
    job.hosts.plug(False)
    try:
        for each in (0, 1):
            job.ends(each, f"herd run: the job failed: node {1 - each} is silent", 2 * DEADLINE + 4)
    finally:
        job.hosts.plug(True)


def cut_cable_for_a_while(job, node):
    """Shorter than the deadline of operations: nothing ends."""
    job.start_both(deadline=30, steps=80)
    job.happened()
    job.hosts.plug(False)
    time.sleep(7)
    job.hosts.plug(True)
    for each in (0, 1):
        job.ends(each, "took all steps", 45, 0)


def read_only_logs(job, node):
    """A node that can't write its logs says so on both."""
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o ro tmpfs {folder}/logs && exec "$@"', "sh"]
    (folder / "logs").mkdir(exist_ok=True)
    job.start(1 - node, options=["--log-dir", str(folder / "logs")])
    time.sleep(1)
    job.start(node, options=["--log-dir", str(folder / "logs")], before=mount)
    job.wait_for(node, "Read-only file system")
    job.happened()
    job.ends(1 - node, rf"node {node} has left the job.*Read-only file system", 4)


def few_files(job, node):
    """A node whose limit of files is too small for its ranks says so on both."""
    job.start(1 - node, ranks=3)
    time.sleep(1)
    job.start(node, ranks=3, before=["sh", "-c", 'ulimit -n 70; exec "$@"', "sh"])
    job.wait_for(node, "open files")
    job.happened()
    job.ends(1 - node, rf"node {node} has left the job", 3)


def restart_node(job, node):
    """A node that is killed and started again joins the job that the other one restarts."""
    job.start_both(options=["--max-restarts", "2"], steps=40)
    job.happened()
    job.signal(job.processes(node), signal.SIGKILL)
    job.wait_for(1 - node, "starting again", seconds=10)
    job.says(1 - node, f"the job failed: node {node} is gone")
    job.start(node, options=["--max-restarts", "2"], steps=40)
    for each in (0, 1):
        job.ends(each, "took all steps", 40, 0)


def uneven_end(job, node):
    """Ranks that end long before those of the other node fail nothing; --grace bounds only what follows a failure."""
    for each in (0, 1):
        where = ["--nnodes", "2", "--node-rank", str(each), "--rendezvous", f"{job.hosts.addresses[0]}:{job.port}"]
        job.start(each, command=[herd, "run", *where, "-n", "1", "--grace", "0", "--", "sh", "-c",
                                 f"[ $HERD_NODE_RANK != {node} ] || sleep 18; echo slept"])
    job.happened()
    for each in (0, 1):
        job.ends(each, "slept", 30, 0)


def other_number_of_nodes(job, node):
    job.start(1 - node)
    time.sleep(1)
    three = [herd, "run", "-n", "1", "--nnodes", "3", "--node-rank", str(node), "--rendezvous",
             f"{job.hosts.addresses[0]}:{job.port}", "--", program, "steps", "3/1"]
    job.start(node, command=three)
    job.happened()
    for each in (0, 1):
        job.ends(each, r"node \d expects \d nodes in the job, but node \d .* expects \d\n  fix: the same --nnodes", 5, 2)


def other_ranks(job, node):
    job.start(1 - node)
    time.sleep(1)
    job.start(node, ranks=2)
    job.happened()
    for each in (0, 1):
        job.ends(each, rf"node 1 has -n = {1 + node}, node 0 has -n = {2 - node}", 5, 2)


def misspelt_options(job, node):
    """Node 1's own command line is refused: node 0 hears of which option, also where that told which node it is."""
    where = ["--nnodes", "2", "--node-rank", str(node), "--rendezvous", f"{job.hosts.addresses[0]}:{job.port}"]
    for wrong, heard in ((["--max-restart", "2"], rf"node {node} has left the job before its start: .*--max-restart"),
                         (["--token", "x"], rf"node {node} has left the job before its start: .*--token"),
                         (None, "a node that has --node-rank 0, but not the rendezvous host .*, has left the job")):
        if wrong is None and node == 0:
            continue
        for each in (0, 1):
            (folder / f"{job.name}.{each}").write_text("")
        job.start(1 - node)
        time.sleep(1)
        options = [*where, *wrong] if wrong else [where[0], where[1], "--noderank", str(node), *where[4:]]
        job.start(node, command=[herd, "run", "-n", "1", *options, "--", program, "steps", "3/1"])
        job.happened()
        job.ends(node, "--max-restart|--token|--noderank", 5)
        job.ends(1 - node, heard, 5, 2)


def loopback(job, node):
    """The name of node 0 is a loopback address there, as Debian has it: no wait."""
    hosts_file = folder / "hosts"
    hosts_file.write_text("127.0.0.1 localhost\n127.0.1.1 first\n")
    job.happened()
    job.start(0, before=["unshare", "-m", "sh", "-c", f'mount --bind {hosts_file} /etc/hosts && exec "$@"', "sh"], host="first")
    job.ends(0, r'host "first" is 127.0.1.1 on this machine: the loopback.*\n  fix: --rendezvous', 5, 2)


RUN = """[model]
layers = 1
width = 32
heads = 2
context = 16
vocab = 300
[data]
kind = "random"
[train]
steps = 3
batch = 8
micro_batch = 2
eval_every = 0
[log]
dir = "{folder}/runs"
"""


def other_run_file(job, node):
    """Of two run files that differ, both nodes hear the key and both values."""
    run = folder / "run.toml"
    run.write_text(RUN.format(folder=folder))
    for each in (0, 1):
        job.start(each, command=[herd, "train", str(run), "--ranks", "1", f"train.seed={5 + each}", f"train.steps={7 + each}"])
    job.happened()
    for each in (0, 1):
        job.ends(each, "node 1 has train.steps = 8, node 0 has train.steps = 7; node 1 has train.seed = 6, node 0 has "
                       "train.seed = 5", 20, 2)


def read_only_run(job, node):
    """A run folder that one node can't write: both hear it, whoever came first."""
    run = folder / "run.toml"
    run.write_text(RUN.format(folder=folder))
    (folder / "runs").mkdir(exist_ok=True)
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o ro tmpfs {folder}/runs && exec "$@"', "sh"]
    job.start(1 - node, command=[herd, "train", str(run), "--ranks", "1", f"log.name={job.name}"])
    time.sleep(2)
    job.start(node, command=[herd, "train", str(run), "--ranks", "1", f"log.name={job.name}"], before=mount)
    job.wait_for(node, "Read-only file system")
    job.happened()
    job.ends(1 - node, f"node {node} has left the job before its start: .*Read-only file system", 3)


def cases():
    """(name, function, node, whether it runs by default)"""
    has_torch = (build / "herd-trainer").exists()
    for function, default_nodes in ((kill_launcher, (0,)), (kill_node, (1,)), (kill_rank, ()), (stop_launcher, ()),
                                    (stop_rank, ()), (stop_node, (1,)), (cut_cable, (0,)), (cut_cable_for_a_while, ()),
                                    (read_only_logs, (1,)), (few_files, ()), (restart_node, (0,)), (uneven_end, ()),
                                    (other_number_of_nodes, (1,)), (other_ranks, (1,)), (misspelt_options, (1,)), (loopback, (0,)),
                                    (other_run_file, (1,)), (read_only_run, ())):
        if not has_torch and function in (other_run_file, read_only_run):
            continue
        once = function in (cut_cable, cut_cable_for_a_while, loopback, other_run_file)
        for node in default_nodes or (1,) if once else (0, 1):
            yield f"{function.__name__}_{node}", function, node, node in default_nodes


def main():
    if reason := two_hosts.why_not():
        print(f"skipped: {reason}")
        sys.exit(two_hosts.CANNOT)
    failures, asked = 0, sys.argv[2:]
    for name, function, node, by_default in cases():
        if not (name in asked or not asked and (by_default or os.environ.get("HERD_FULL_TESTS"))):
            continue
        began = time.time()
        with two_hosts.TwoHosts() as hosts:
            job = Job(hosts, name)
            for each in (0, 1):
                (folder / f"{name}.{each}").touch()
            try:
                function(job, node)
                print(f"{name}: {time.time() - began:.1f} s", flush=True)
            except Failed as failed:
                failures += 1
                print(f"{name} FAILED after {time.time() - began:.1f} s: {failed}\n{job.outputs()}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failures else 0)


main()
