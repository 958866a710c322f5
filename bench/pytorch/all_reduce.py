"""all_reduce through torch.distributed, herd and gloo by turns: 2 ranks, a thread each. Prints JSON lines.

    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 .venv/bin/python bench/pytorch/all_reduce.py
        [--sizes 4KiB,1MiB,64MiB,256MiB] [--record torch_all_reduce]

Each line has the median and the least time of an operation. Every rank writes its input before each operation, so that
no peer reads it from its own cache, and reads the result after it, both outside the time, as `herd bench` does. One
machine's load changes during a run: compare the two backends of a line, not lines.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import herd_torch  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import page  # noqa: E402

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def bytes_of(text):
    return int(text[:-3]) * UNITS[text[-3:]]


def run(rank, folder, sizes, seconds):
    torch.set_num_threads(1)
    dist.init_process_group(
        "herd", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60)
    )
    groups = {"herd": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    for size in sizes:
        x = torch.empty(bytes_of(size) // 4)
        times = {name: [] for name in groups}
        rounds = torch.zeros(1, dtype=torch.int64)
        until = time.monotonic() + seconds
        while rounds == 0 or len(times["herd"]) < 5:
            for name, group in groups.items():
                batch = max(1, min(200, (1 << 20) // bytes_of(size)))  # operations between two looks at the clock
                for _ in range(3):
                    x.fill_(rank + 1)
                    dist.barrier()
                    began = time.perf_counter()
                    for _ in range(batch):
                        dist.all_reduce(x, group=group)
                    times[name].append((time.perf_counter() - began) / batch)
                    x.sum()
            rounds.fill_(int(time.monotonic() > until))
            dist.broadcast(rounds, 0)
        x.fill_(rank + 1)
        dist.all_reduce(x)
        assert x[0] == 3 and x[-1] == 3
        if rank == 0:
            line = {"operation": "all_reduce", "ranks": 2, "bytes": bytes_of(size), "torch": torch.__version__}
            for name, samples in times.items():
                line[name] = {"median_us": statistics.median(samples) * 1e6, "least_us": min(samples) * 1e6}
            line["gloo_over_herd"] = line["gloo"]["median_us"] / line["herd"]["median_us"]
            print(json.dumps(line), flush=True)
            with open(f"{folder}/lines", "a") as lines:
                print(json.dumps(line), file=lines)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="4KiB,1MiB,64MiB,256MiB")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each size")
    parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(2):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    run(rank, folder, given.sizes.split(","), given.seconds)
                    status = 0
                finally:
                    os._exit(status)
            pids.append(pid)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        if any(statuses):
            sys.exit(f"the ranks ended with {statuses}")
        if given.record:
            lines = pathlib.Path(folder, "lines").read_text().splitlines()
            page.record(given.record, "torch_all_reduce", [json.loads(line) for line in lines])
