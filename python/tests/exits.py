"""Programs end as Python ends, in whatever state, and leave no process, no file and no shared memory behind.

    python exits.py [--only NAME]
"""

import argparse
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import herd_torch  # noqa: F401, registers the backend

PR_SET_CHILD_SUBREAPER = 36
RANKS = 2
WITHIN = 20.0  # seconds: a rank waits at most 3 for what it still sends
kept = []  # as a program's globals, until the interpreter ends


def no_destruction(rank):
    kept.append(dist.new_group([0, 1]))
    dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(1000), group=kept[0])


def a_pending_send(rank):
    kept.append(dist.isend(torch.ones(1 << 20), 1 - rank))
    kept.append(dist.irecv(torch.ones(1 << 20), 1 - rank, tag=5))
    kept.append(dist.all_reduce(torch.ones(1000), async_op=True))


def destruction_in_reverse(rank):
    groups = [dist.new_group([0, 1]) for _ in range(3)]
    kept.extend(dist.all_reduce(torch.ones(100), group=group, async_op=True) for group in groups)
    for group in [dist.group.WORLD, *groups] if rank == 0 else [*groups[::-1], dist.group.WORLD]:
        try:
            dist.destroy_process_group(group)
        except (AssertionError, ValueError):  # the world has ended it
            assert rank == 0


def an_exception(rank):
    dist.barrier()
    if rank == 1:
        raise ValueError("of rank 1 alone")
    dist.all_reduce(torch.ones(3))


PROGRAMS = {program.__name__: program for program in (no_destruction, a_pending_send, destruction_in_reverse, an_exception)}


def is_rank_of(name, folder):
    """Forks the ranks of a program, and waits for them. Returns true in a rank, which has run the program by then."""
    pids = []
    for rank in range(RANKS):
        pid = os.fork()
        if pid == 0:
            errors = os.open(f"{folder}/errors{rank}", os.O_WRONLY | os.O_CREAT)
            os.dup2(errors, 2)
            dist.init_process_group("herd", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
            PROGRAMS[name](rank)
            return True
        pids.append(pid)
    check_ends(name, pids)
    texts = [pathlib.Path(folder, f"errors{rank}").read_text() for rank in range(RANKS)]
    for text in texts:
        assert "terminate called" not in text and "Fatal" not in text, (name, text)
    if name == "an_exception":
        assert "of rank 1 alone" in texts[1] and "rank 1 has left" in texts[0], texts
    return False


def check_ends(name, pids):
    until = time.monotonic() + WITHIN
    for rank, pid in enumerate(pids):
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            assert time.monotonic() < until, f"{name}: rank {rank} still runs after {WITHIN} s"
            time.sleep(0.01)
        status = os.waitstatus_to_exitcode(ended[1])
        assert status == (name == "an_exception"), f"{name}: rank {rank} ended with {status}"


INTERRUPTED = """
import os, sys, torch, torch.distributed as dist, herd_torch
dist.init_process_group("herd")
dist.barrier()
open(f"{sys.argv[1]}/rank{dist.get_rank()}", "w")
dist.recv(torch.ones(1), 1 - dist.get_rank())
"""


def an_interrupt_of_torchrun(folder):
    """Ctrl-C reaches what the terminal has started, torchrun, which ends its ranks: they wait for each other in herd."""
    pathlib.Path(folder, "program.py").write_text(INTERRUPTED)
    with open(f"{folder}/output", "w") as output:
        job = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "--log-dir",
             f"{folder}/logs", f"{folder}/program.py", folder],
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    until = time.monotonic() + 60
    while not all(os.path.exists(f"{folder}/rank{rank}") for rank in range(RANKS)) and job.poll() is None:
        assert time.monotonic() < until, "the ranks do not start"
        time.sleep(0.02)
    time.sleep(0.3)  # until they are in recv
    os.killpg(job.pid, signal.SIGINT)
    assert job.wait(2 * WITHIN) != 0, pathlib.Path(folder, "output").read_text()


def check_nothing_is_left(name, before, scratch):
    """Orphans are children of this process by now. Other programs of this machine may have files in /dev/shm for a moment."""
    until = time.monotonic() + 5
    while not (left := set(os.listdir("/dev/shm")) - before) <= set() and time.monotonic() < until:
        time.sleep(0.1)
    left = [*left, *os.listdir(scratch)]
    try:
        left.append(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        pass
    assert not left, f"{name} leaves {left}"


def main(only):
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    this = os.getpid()
    for name in (*PROGRAMS, "an_interrupt_of_torchrun"):
        if only not in name:
            continue
        began, before = time.monotonic(), set(os.listdir("/dev/shm"))
        folder, scratch = tempfile.mkdtemp(), tempfile.mkdtemp()  # which a rank must not remove as it ends
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        try:
            if name not in PROGRAMS:
                an_interrupt_of_torchrun(folder)
            elif is_rank_of(name, folder):
                return
            check_nothing_is_left(name, before, scratch)
        finally:
            if os.getpid() == this:
                shutil.rmtree(folder), shutil.rmtree(scratch)
        tempfile.tempdir = None
        del os.environ["TMPDIR"]
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    main(parser.parse_args().only)
