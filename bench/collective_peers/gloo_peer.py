"""Times collectives of fp32 in torch.distributed's gloo:   gloo_peer.py CORE_DISTANCE_LIBRARY WORDS_FILE OP,.. BYTES:ITERATIONS ..

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. Prints what mpi_peer.c prints.
"""
import ctypes
import itertools
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore", category=FutureWarning)
torch.set_num_threads(1)
library = ctypes.CDLL(sys.argv[1])
library.core_distance_ns.restype = ctypes.c_double
library.core_distance_open(sys.argv[2].encode())
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
measures = ranks <= os.cpu_count()

for op, text in itertools.product(sys.argv[3].split(","), sys.argv[4:]):
    size, iterations = map(int, text.split(":"))
    whole, part = torch.empty(size // 4), torch.empty(size // 4 // ranks)
    other = torch.empty(size // 4)
    calls = {
        "all_reduce": (whole, lambda: dist.all_reduce(whole)),
        "all_gather": (part, lambda: dist.all_gather_into_tensor(whole, part)),
        "reduce_scatter": (whole, lambda: dist.reduce_scatter_tensor(part, whole)),
        "all_to_all": (whole, lambda: dist.all_to_all_single(other, whole)),
        "broadcast": (whole, lambda: dist.broadcast(whole, 0)),
        "reduce": (whole, lambda: dist.reduce(whole, 0)),
    }
    x, call = calls[op]
    begins, ends, distances = [], [], []
    for i in range(-3, iterations):
        x.fill_(rank + 1)
        dist.barrier()
        if measures and i >= 0 and i % (iterations // 8 + 1) == 0:
            distances.append(library.core_distance_ns(rank))
        dist.barrier()
        begins.append(time.monotonic_ns())
        call()
        ends.append(time.monotonic_ns())
    first, last = torch.tensor(begins[3:]), torch.tensor(ends[3:])
    dist.all_reduce(first, dist.ReduceOp.MIN)
    dist.all_reduce(last, dist.ReduceOp.MAX)
    if rank == 0:
        ns = sorted(distances)[len(distances) // 2] if distances else 0
        print(f"peer {op} {size} {ns:.0f}", *(f"{us:.3f}" for us in ((last - first) / 1e3).tolist()))
dist.destroy_process_group()
