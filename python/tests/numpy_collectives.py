"""The package herd: every operation on numpy arrays against what numpy says, its errors, and the guide's example.

    python numpy_collectives.py
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import numpy as np
from counting_thread import FEWEST, PAUSE, counts_during

import herd

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GUIDE = SOURCE / "docs" / "guide" / "numpy.md"


def world(body, ranks):
    """Runs body(communicator) on each rank, in a forked process. Returns the exit statuses."""
    meeting = f"tcp://127.0.0.1:{20000 + os.getpid() % 10000}"
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with herd.create(meeting, rank, ranks, deadline=20) as comm:
                    body(comm)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def values(rank, dtype, count, seed):
    """Small whole numbers: sums and products of a few are exact in every dtype."""
    return (np.random.default_rng(100 * seed + rank).integers(0, 3, count)).astype(dtype)


def operations(comm):
    rank, size = comm.rank, comm.size
    for seed, (dtype, count) in enumerate(
        (d, n) for d in ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                         "uint64", "bool") for n in (0, 1, 5, 1000)
    ):  # fmt: skip
        every = [values(r, dtype, count, seed) for r in range(size)]
        mine = every[rank]

        def same(found, wanted, what):
            assert found.dtype == mine.dtype and np.array_equal(found, wanted), (what, dtype, count, found, wanted)

        ops = ["and", "or"] if dtype == "bool" else ["sum", "max", "min", "product"]
        of = {"sum": np.add, "max": np.maximum, "min": np.minimum, "product": np.multiply, "and": np.logical_and, "or": np.logical_or}
        for op in ops:
            wanted = of[op].reduce(np.stack(every)).astype(dtype)
            same(comm.all_reduced(mine, op), wanted, op)
            x = mine.copy()
            work = comm.all_reduce(x, op, async_op=True, name="mine", deadline=10.0)
            work.wait()
            assert work.done()
            same(x, wanted, op)
            x = mine.copy()
            comm.reduce(x, size - 1, op)
            same(x, wanted if rank == size - 1 else mine, "reduce")
        x = mine.copy()
        comm.broadcast(x, size - 1)
        same(x, every[-1], "broadcast")
        same(comm.all_gathered(mine), np.concatenate(every), "all_gathered")
        out = np.empty(count * size if rank == 0 else 0, dtype)
        comm.gather(mine, out if rank == 0 else None)
        if rank == 0:
            same(out, np.concatenate(every), "gather")
        out = np.empty_like(mine)
        comm.scatter(np.concatenate(every) if rank == 0 else None, out)
        same(out, mine, "scatter")
        whole = [np.concatenate([values(r, dtype, count, seed + 7 * t + 1) for t in range(size)]) for r in range(size)]
        out = np.empty_like(whole[rank])
        comm.all_to_all(whole[rank], out)
        same(out, np.concatenate([w.reshape(size, count)[rank] for w in whole]), "all_to_all")
        if dtype != "bool":
            same(comm.reduce_scattered(whole[rank]), np.add.reduce(np.stack(whole)).astype(dtype).reshape(size, count)[rank], "reduce_scattered")  # fmt: skip
        sent = comm.send(mine, (rank + 1) % size, tag=4, async_op=True)
        got = np.empty_like(mine)
        assert comm.receive(got, None if count else (rank - 1) % size, tag=4) == (rank - 1) % size
        sent.wait()
        same(got, every[(rank - 1) % size], "receive")
    comm.barrier()


def shapes_groups_and_pages(comm):
    rank, size = comm.rank, comm.size
    rows = comm.all_gathered(np.full((rank + 1, 2), rank, np.int32))  # uneven
    assert rows.tolist() == [[r, r] for r in range(size) for _ in range(r + 1)], rows
    counts = [2 * (r + 1) for r in range(size)]
    assert np.array_equal(comm.all_gathered(np.full((rank + 1, 2), rank, np.int32), counts=counts), rows)
    matrix = [[f + t for t in range(size)] for f in range(size)]
    out = np.empty(sum(matrix[f][rank] for f in range(size)), np.int64)
    comm.all_to_all(np.full(sum(matrix[rank]), rank), out, counts=matrix)
    assert out.tolist() == [f for f in range(size) for _ in range(f + rank)]
    pages = comm.symmetric((3, 5), np.float64)
    assert pages.shape == (3, 5) and not pages.any()
    pages[:] = rank
    comm.all_reduce(pages)
    assert (pages == sum(range(size))).all()
    part = pages[1]
    del pages  # the view keeps the memory
    comm.all_reduce(part, "max")
    assert (part == sum(range(size))).all()

    pair = comm.split(rank % 2, name="parity")
    assert pair.all_gathered(np.array([rank])).tolist() == list(range(rank % 2, size, 2))
    if rank in (0, size - 1) and size > 1:
        ends = comm.group([size - 1, 0], "ends")
        assert ends.all_gathered(np.array([rank])).tolist() == [size - 1, 0]
    assert comm.bytes_moved > 0 or size == 1


def refusals(comm):
    def refused(kind, part, call):
        try:
            call()
        except kind as error:
            assert part in str(error), error
            return error
        raise AssertionError(f"accepted: {part}")

    x = np.zeros((4, 4), np.float32)
    refused(herd.BadConfigError, "strides", lambda: comm.all_reduce(x.T))
    refused(ValueError, "complex64", lambda: comm.all_reduce(x.astype(np.complex64)))
    refused(herd.BadConfigError, "byte order", lambda: comm.all_reduce(x.astype(">f4")))
    refused(herd.BadConfigError, "not list", lambda: comm.all_reduce([1.0]))
    frozen = x.copy()
    frozen.flags.writeable = False
    refused(herd.BadConfigError, "read-only", lambda: comm.all_reduce(frozen))
    assert comm.all_reduced(frozen).flags.writeable
    error = refused(herd.BadConfigError, "no reduce op", lambda: comm.all_reduce(x, "mean"))
    assert error.code == "kBadConfig"
    refused(herd.BadConfigError, "equal parts", lambda: comm.reduce_scattered(np.zeros(comm.size + 1)))
    refused(herd.BadConfigError, "init_method", lambda: herd.create("somewhere", 0, 1))
    comm.set_deadline(0.3)
    if comm.size > 1 and comm.rank == 0:
        refused(herd.Error, "rank 1", lambda: comm.all_reduce(x))


def lost_rank(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(np.zeros(3))
    except herd.PeerLostError as error:
        assert "rank 1" in str(error) and isinstance(error, ConnectionError)
        left = comm.shrink()
        assert left.all_reduced(np.array([comm.rank])).tolist() == [2], "0 and 2 go on"
    else:
        raise AssertionError("a dead rank was not noticed")


def interrupted(comm):
    """Ctrl-C while both ranks wait for each other: Python's handler does not run inside a call of the library."""
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        comm.receive(np.zeros(3), 1 - comm.rank)
    except (KeyboardInterrupt, herd.Error) as error:
        assert isinstance(error, KeyboardInterrupt) or "Ctrl-C" in str(error), error
        assert time.monotonic() - began < 10, f"{time.monotonic() - began} s"
    else:
        raise AssertionError("nothing was sent")


def other_threads_run_meanwhile(comm):
    x, peer = np.ones(1000), 1 - comm.rank
    for name, wait in {
        "a synchronous all-reduce": lambda: comm.all_reduce(x),
        "a wait for one": lambda: comm.all_reduce(x, async_op=True).wait(),
        "a message": lambda: comm.send(x, peer) if comm.rank else comm.receive(x, peer),
        "a barrier": comm.barrier,
        "a new group": lambda: comm.split(0),
    }.items():
        comm.barrier()
        if comm.rank == 1:
            time.sleep(PAUSE)
            wait()
        else:
            counted = counts_during(wait)
            assert counted >= FEWEST, f"{name} holds the interpreter: {counted} counts in {PAUSE} s"


def closed_and_dropped(comm):
    x = np.ones(1 << 16)
    work = comm.all_reduce(x, async_op=True)
    del work  # waits, since x would be used behind the caller's back
    assert (x == comm.size).all()
    comm.close()
    try:
        comm.barrier()
    except herd.BadConfigError as error:
        assert "closed" in str(error)
    else:
        raise AssertionError("a closed communicator answered")


def tools(command):
    explained = herd.explain("all_reduce", "--ranks", "4", "--bytes", "64MiB")
    assert explained, explained
    planned = herd.plan("gpt2-xl", "--ranks", "4", "--cluster", "a100-80gb")
    assert planned, planned
    try:
        herd.plan("no-such-model")
    except herd.BadConfigError as error:
        assert "no-such-model" in str(error)
    text = subprocess.run([command, "show", "schedule", "all_reduce", "--algorithm", "ring", "--ranks", "3"],
                          check=True, capture_output=True, text=True).stdout  # fmt: skip
    assert herd.verify(text) == []
    broken = re.sub(r"receive_reduce (<- \d \S+) = \S+( complete)?", r"receive \1", text, count=1)
    assert broken != text and herd.verify(broken), "a sum that is left out is found"
    assert re.fullmatch(r"\d+\.\d+\.\d+", herd.version())


def guide(command):
    """The guide's first example runs as it is printed, as two ranks of herd run."""
    code = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "program.py")
        program.write_text(code)
        done = subprocess.run([command, "run", "-n", "2", "--", sys.executable, program], text=True,
                              capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[0] the sum of 2 ranks is [2. 4. 6.]" in done.stdout, done.stdout


if __name__ == "__main__":
    assert "torch" not in sys.modules
    for ranks in (1, 3):
        assert world(operations, ranks) == [0] * ranks
        assert world(shapes_groups_and_pages, ranks) == [0] * ranks
    assert world(refusals, 2) == [0, 0]
    assert world(lost_rank, 3) == [0, -signal.SIGKILL, 0]
    assert world(interrupted, 2) == [0, 0]
    assert world(other_threads_run_meanwhile, 2) == [0, 0]
    assert world(closed_and_dropped, 2) == [0, 0]
    package = pathlib.Path(herd.__file__).parent
    command = str(package / "bin" / "herd")  # of the wheel
    if not os.path.exists(command):
        command = os.environ["HERD_COMMAND"] = str(package.parents[1] / "herd")
    tools(command)
    guide(command)
