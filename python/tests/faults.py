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
        text = " " + str(error).split('": ', 1)[-1]  # without whose error it is
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
    fails(lambda: dist.all_reduce(torch.ones(10, dtype=torch.int32 if rank == 1 else torch.float32)),
          "int32", "fp32", "rank 1", "all_reduce")  # fmt: skip


def another_path(rank, ranks):
    x = torch.ones(10)
    call = (lambda: dist.broadcast(x, 0)) if rank == 1 else (lambda: dist.all_reduce(x))
    fails(call, "broadcast", "all_reduce", "rank 1")


def a_rank_that_does_not_come(rank, ranks):
    if rank == 1:
        time.sleep(3 * SECONDS)
        os._exit(0)
    fails(lambda: dist.all_reduce(torch.ones(10)), " Timed out ", "rank 1", "all_reduce", within=2 * SECONDS)


def coalesced(call, sizes, group):
    with dist._coalescing_manager(group=group):
        for size in sizes:
            call(size)


def operations(group, members, me, odd):
    """Calls of rank `me` of the group, by name: where `odd` is 1, this rank's differ from the other ranks'."""
    ones, n = torch.ones, len(members)
    return {
        "all_reduce": lambda: dist.all_reduce(ones(10 + odd), group=group),
        "broadcast": lambda: dist.broadcast(ones(10, dtype=torch.int32 if odd else torch.float32), members[0], group),
        "reduce ": lambda: dist.reduce(ones(10), members[odd], group=group),
        "all_gather": lambda: dist.all_gather([ones(5 + odd) for _ in range(n)], ones(5 + odd), group),
        "all_gather, uneven": lambda: dist.all_gather([ones(5 + k + odd * (k != me)) for k in range(n)], ones(5 + me), group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(ones(4 + odd), ones(n * (4 + odd)), group=group),
        "reduce_scatter, uneven": lambda: dist.reduce_scatter(
            ones(5 + me), [ones(5 + k + odd * (k != me)) for k in range(n)], group=group),
        "all_reduce, coalesced": lambda: coalesced(
            lambda size: dist.all_reduce(ones(size), group=group), [3, 4 + odd], group),
        "reduce_scatter, coalesced": lambda: coalesced(
            lambda size: dist.reduce_scatter_tensor(ones(size), ones(n * size), group=group), [3, 4 + odd], group),
        "all_gather, coalesced": lambda: coalesced(
            lambda size: dist.all_gather_into_tensor(ones(n * size), ones(size), group=group), [3, 4] + [5] * odd, group),
        "all_to_all": lambda: dist.all_to_all_single(ones(n * (2 + odd)), ones(n * (2 + odd)), group=group),
        "gather|scatter": lambda: (
            dist.scatter(ones(2), [ones(2)] * n if me == 0 else None, members[0], group=group) if odd else
            dist.gather(ones(2), [ones(2) for _ in range(n)] if me == 0 else None, members[0], group=group)),
    }  # fmt: skip


def fails_now_or_next(call, name, group, *words, within):
    """A rank that others do not depend on, such as the root of a broadcast, may return: its next operation fails."""
    is_rooted = name in ("broadcast", "reduce ", "gather|scatter")
    name = name.split(",")[0]
    fails(lambda: (call(), is_rooted and dist.barrier(group)), f"{name}|barrier" if is_rooted else name, *words, within=within)


def every_difference_is_named(rank, ranks):
    """Of rank 1, in groups of all ranks and of two: each group fails once."""
    for members in ([0, 1, 2], [1, 2]):
        for name in operations(None, members, 0, 0):
            group = dist.new_group(members)
            if rank in members:
                call = operations(group, members, members.index(rank), int(rank == 1))[name]
                fails_now_or_next(call, name, group, "rank 1", within=5)


def every_absence_is_named(rank, ranks):
    """A rank that does not call is named by each other member within twice the group's timeout."""
    for members, every in (([0, 1, 2], 1), ([1, 2], 3)):
        for name in list(operations(None, members, 0, 0))[::every]:
            group = dist.new_group(members, timeout=datetime.timedelta(seconds=0.5))
            if rank in members and rank != 1:
                call = operations(group, members, members.index(rank), 0)[name]
                fails_now_or_next(call, name, group, " Timed out ", "rank 1", within=1)
            dist.barrier()


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


def an_interrupt_of_one_rank(rank, ranks):
    """Ctrl-C ends the wait of rank 1; the others learn that it was there."""
    if rank == 1:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            dist.all_reduce(torch.ones(10))
        except (KeyboardInterrupt, dist.DistBackendError):
            assert time.monotonic() - began < 5, f"{time.monotonic() - began} s"
            return
        raise AssertionError("no error")
    if rank == 2:
        time.sleep(1)  # until rank 1 has been interrupted
    fails(lambda: dist.all_reduce(torch.ones(10)), "rank 1", "Ctrl-C", within=5)


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
    else:
        time.sleep(0.3 * (rank - 1))  # rank 1 waits in the group when it ends, rank 2 comes later
        fails(lambda: dist.all_reduce(torch.ones(3), group=group), "abort", "rank 0", within=5)
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
    every_difference_is_named, every_absence_is_named, a_rank_that_does_not_come, a_stopped_rank, an_interrupt_ends_all,
    an_interrupt_of_one_rank, a_timeout_of_one_group_leaves_others,
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
