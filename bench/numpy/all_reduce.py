"""An all-reduce of numpy arrays over herd, in ordinary and in symmetric memory, beside mpi4py over Open MPI, by turns.

    PYTHONPATH=build/release/python .venv/bin/python bench/numpy/all_reduce.py [--bytes 67108864] [--ranks 2] [--rounds 5]
        [--record numpy_all_reduce]

Each round starts a job of each contender, which prints the median of its repetitions. The last column is the median over
the rounds of mpi4py's time divided by the contender's of the same round. Needs pip install mpi4py, mpirun and build/release.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import page  # noqa: E402
import tables  # noqa: E402

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build" / "release"
CONTENDERS = ("mpi4py", "herd", "herd symmetric")


def run_rank(contender, count, repetitions):
    if contender == "mpi4py":
        from mpi4py import MPI

        rank, x, barrier = MPI.COMM_WORLD.rank, np.ones(count, np.float32), MPI.COMM_WORLD.Barrier
        reduce = lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, x)  # noqa: E731
    else:
        import herd

        comm = herd.create()
        rank, barrier = comm.rank, comm.barrier
        x = comm.symmetric(count) if contender == "herd symmetric" else np.ones(count, np.float32)
        reduce = lambda: comm.all_reduce(x)  # noqa: E731
    times = []
    for repetition in range(repetitions + 2):
        x[:] = repetition
        barrier()
        start = time.perf_counter()
        reduce()
        times.append(time.perf_counter() - start)
    if rank == 0:
        print(statistics.median(times[2:]))


def run_job(contender, arguments):
    rank = [sys.executable, __file__, "--contender", contender, "--bytes", str(arguments.bytes), "--repetitions", str(arguments.repetitions)]
    launcher = [BUILD / "herd", "run", "-n", str(arguments.ranks), "--"]
    if contender == "mpi4py":
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(arguments.ranks)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    output = subprocess.run([*launcher, *rank], check=True, capture_output=True, text=True, env=environment).stdout
    return float(output.split()[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        run_rank(arguments.contender, arguments.bytes // 4, arguments.repetitions)
        sys.exit()
    samples = [{"bytes": arguments.bytes, "ranks": arguments.ranks, "s": {name: run_job(name, arguments) for name in CONTENDERS}}
               for _ in range(arguments.rounds)]  # fmt: skip
    print(tables.markdown(*tables.numpy_all_reduce(samples)))
    if arguments.record:
        page.record(arguments.record, "numpy_all_reduce", samples)
