"""What happens when a rank dies, takes another path or does not come: every other rank gets an error that names it, in
time; and nothing hangs or stays when a program ends, in whatever order.

    python faults.py [--only NAME]
"""

import argparse
import datetime
import os
import re
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from ranks import fork

SECONDS = 2.0  # the timeout of the group whose rank does not come; 20 s for other groups, which learn sooner


def fails(call, *words, within=10):
    began = time.monotonic()
    try:
        call()
    except dist.DistBackendError as error:
        text = str(error)
        for word in words:
            assert re.search(word, text), f"no {word!r} in: {text}"
        assert time.monotonic() - began < within, f"{time.monotonic() - began} s"
        return text
    raise AssertionError("no error")


def a_killed_rank(rank, ranks):
    dist.barrier()
    if rank == 1:
        time.sleep(0.5)  # the others have left the barrier
        os.kill(os.getpid(), signal.SIGKILL)
    fails(lambda: dist.all_reduce(torch.ones(100000)), "rank 1 is lost", "all_reduce", " closed ")


def a_rank_killed_in_flight(rank, ranks):
    dist.barrier()
    if rank == 1:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        time.sleep(60)
    work = dist.all_reduce(torch.ones(100000), async_op=True)
    fails(work.wait, "rank 1", "all_reduce")
    future = work.get_future()
    fails(future.wait, "rank 1")


def another_shape(rank, ranks):
    text = fails(lambda: dist.all_reduce(torch.ones(10 + (rank == 1))), "all_reduce", "rank 1")
    assert "10" in text and "11" in text, text


def another_type(rank, ranks):
    fails(lambda: dist.all_reduce(torch.ones(10, dtype=torch.int32 if rank == 1 else torch.float32)), "int32", "fp32")


def another_path(rank, ranks):
    x = torch.ones(10)
    call = (lambda: dist.broadcast(x, 0)) if rank == 1 else (lambda: dist.all_reduce(x))
    fails(call, "broadcast", "all_reduce", "rank 1")


def a_rank_that_does_not_come(rank, ranks):
    if rank == 1:
        time.sleep(3 * SECONDS)
        os._exit(0)
    fails(lambda: dist.all_reduce(torch.ones(10)), " Timed out ", "rank 1")


def a_stopped_rank(rank, ranks):
    pids = [None] * ranks
    dist.all_gather_object(pids, os.getpid())
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        return fails(lambda: dist.all_reduce(torch.ones(10)), "rank 1", "all_reduce")
    try:
        fails(lambda: dist.all_reduce(torch.ones(10)), " Timed out ", "rank 1", "all_reduce", within=2 * SECONDS)
    finally:
        if rank == 0:
            time.sleep(0.5)  # until rank 2 has failed, too
            os.kill(pids[1], signal.SIGCONT)


def an_interrupt_ends_all(rank, ranks):
    """Ctrl-C while every rank waits for another in herd: no handler of Python's runs there."""
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        dist.recv(torch.ones(1), (rank + 1) % ranks)
    except (KeyboardInterrupt, dist.DistBackendError) as error:
        assert "Ctrl-C" in str(error) or isinstance(error, KeyboardInterrupt), error
        assert time.monotonic() - began < 5, f"{time.monotonic() - began} s"
    else:
        raise AssertionError("no error")


def no_line_of_herd_is_named(rank, ranks):
    text = fails(lambda: dist.all_reduce(torch.ones(10 + (rank == 1))), "all_reduce")
    assert ".h:" not in text and ".cpp:" not in text, text


def a_timeout_of_one_group_leaves_others(rank, ranks):
    pair = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=0.3))
    if rank == 0:
        fails(lambda: dist.recv(torch.ones(1), 1, group=pair), " (Timed out|closed|timeout) ", "rank 1")
    dist.barrier()
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == ranks


def an_aborted_group(rank, ranks):
    group = dist.new_group(list(range(ranks)))
    backend = group._get_backend(torch.device("cpu"))
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        threading.Timer(0.1, backend.abort).start()
        fails(work.wait, "abort")
    dist.barrier()


def a_monitored_barrier_names_all(rank, ranks):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if rank == 0:
        try:
            backend.monitored_barrier(datetime.timedelta(seconds=0.5), True)
        except RuntimeError as error:
            assert re.search(r"\[Rank 0\]: Ranks? [12, ]+ failed to pass monitoredBarrier in 500 ms", str(error)), error
        else:
            raise AssertionError("passed")
    else:
        time.sleep(1)
    dist.barrier()


def a_closed_group(rank, ranks):
    group = dist.new_group(list(range(ranks)))
    dist.all_reduce(torch.ones(3), group=group)
    backend = group._get_backend(torch.device("cpu"))
    backend.shutdown()
    fails(lambda: dist.all_reduce(torch.ones(3), group=group), "is closed")


def no_destruction(rank, ranks):
    """The program ends with operations and groups that nobody has ended."""
    dist.new_group(list(range(ranks)))
    dist.all_reduce(torch.ones(3))
    dist.isend(torch.ones(1000), (rank + 1) % ranks)
    dist.irecv(torch.ones(1000), (rank + 1) % ranks, tag=5)
    sys.stdout.flush()
    import atexit

    atexit._run_exitfuncs()
    os._exit(0)


def destruction_in_another_order(rank, ranks):
    groups = [dist.new_group(list(range(ranks))) for _ in range(5)]
    works = [dist.all_reduce(torch.ones(100), group=group, async_op=True) for group in groups]
    for work in works:
        work.wait()
    dist.destroy_process_group(groups[3])
    held = groups[0]
    dist.barrier()
    dist.destroy_process_group()
    del groups, held
    dist.init_process_group("herd", init_method=f"file://{STORE}", rank=rank, world_size=ranks)
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x[0] == ranks


def an_unfinished_send_arrives(rank, ranks):
    if rank == 0:
        dist.isend(torch.full((1 << 20,), 7.0), 1)
    elif rank == 1:
        time.sleep(0.3)
        x = torch.zeros(1 << 20)
        dist.recv(x, 0)
        assert x[-1] == 7


CHECKS = [
    a_killed_rank, a_rank_killed_in_flight, another_shape, another_type, another_path, no_line_of_herd_is_named,
    a_rank_that_does_not_come, a_stopped_rank, an_interrupt_ends_all, a_timeout_of_one_group_leaves_others,
    an_aborted_group, a_monitored_barrier_names_all, a_closed_group, no_destruction, destruction_in_another_order,
    an_unfinished_send_arrives,
]  # fmt: skip
KILLED = {"a_killed_rank", "a_rank_killed_in_flight"}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    passed = True
    for check in CHECKS:
        if given.only not in check.__name__:
            continue
        STORE = f"/tmp/herd-faults-{os.getpid()}-{check.__name__}"
        began = time.monotonic()
        timeout = SECONDS if check in (a_rank_that_does_not_come, a_stopped_rank) else 20
        statuses = fork(check, 3, timeout=timeout, within=60)
        want = [0, -signal.SIGKILL if check.__name__ in KILLED else 0, 0]
        if os.path.exists(STORE):
            os.remove(STORE)
        print(f"{check.__name__}: {time.monotonic() - began:.1f} s", flush=True)
        if statuses != want:
            print(f"FAILED: {check.__name__}: exit statuses {statuses}", flush=True)
            passed = False
    sys.exit(0 if passed else 1)
