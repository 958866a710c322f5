"""A rank is killed: nothing of the job may stay."""
import contextlib
import glob
import os
import signal
import subprocess
import time

from parity import small_model
from programs import Failed, end_group, first_error, steps_of


def gpu_memory_used():
    """MiB, of the first GPU; None where that is not to be learnt."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(subprocess.run(query, capture_output=True, text=True).stdout.split()[0])
    return None


def descendants(pid):
    """Processes that a process started, and theirs."""
    children = {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = open(stat).read()
            children.setdefault(int(text[text.rindex(")"):].split()[2]), []).append(int(text.split()[0]))
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def is_running(pid):
    with contextlib.suppress(OSError):
        text = open(f"/proc/{pid}/stat").read()
        return text[text.rindex(")"):].split()[1] not in "ZX"
    return False


def part_kill(c):
    with c.attempt("a rank is killed"):
        before = None if c.small else gpu_memory_used()
        overrides = ["train.steps=100000", "train.threads=1", "mesh.dp=2", *(small_model("llama") if c.small else [])]
        folder = c.work / "killed"
        command = c.trainer.command(c.build.runs / "small_llama.toml", c.device, 2, overrides, "killed")
        with open(c.work / "killed.txt", "w") as output:
            job = subprocess.Popen([str(part) for part in command], stdout=output, stderr=subprocess.STDOUT,
                                   env=c.build.environment, start_new_session=True)
        try:
            until = time.monotonic() + c.left(40)
            while len(steps_of(folder)) < 3:
                if job.poll() is not None or time.monotonic() > until:
                    raise Failed(f"it did not begin: {first_error((c.work / 'killed.txt').read_text())}")
                time.sleep(0.1)
            family = descendants(job.pid)
            ranks = [pid for pid in family if "herd-trainer" in open(f"/proc/{pid}/cmdline").read().split("\0")[0]]
            if len(ranks) != 2:
                raise Failed(f"{len(ranks)} ranks among the job's processes")
            begun = time.monotonic()
            os.kill(ranks[1], signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(c.left(30))
            took = time.monotonic() - begun
            output = (c.work / "killed.txt").read_text()
            c.report.log(output[-4000:])
            status = job.poll()
            c.report.row("a rank is killed: the job", "goes on" if status is None else f"ends after {took:.1f} s, status {status}: "
                         f"{first_error(output)}"[:150], "an error", status not in (None, 0))
            while any(map(is_running, family)) and time.monotonic() < begun + took + 3:
                time.sleep(0.1)
            left = sum(map(is_running, family))
            c.report.row("a rank is killed: processes left", left, "0", left == 0)
            if before is not None:
                after = gpu_memory_used()
                for _ in range(20):
                    if after is None or after <= before + 64:
                        break
                    time.sleep(0.25)
                    after = gpu_memory_used()
                c.report.row("a rank is killed: GPU memory", f"{before} MiB before, {after} MiB after", "<= 64 MiB more",
                             after is not None and after <= before + 64)
        finally:
            end_group(job)
