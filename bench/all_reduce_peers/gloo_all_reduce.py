"""The peer of herd_all_reduce.cpp over torch.distributed's gloo:   gloo_all_reduce.py BYTES ITERATIONS (RANK, WORLD_SIZE set)"""
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
count, iterations = int(sys.argv[1]) // 4, int(sys.argv[2])
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
x = torch.empty(count)
for i in range(-3, iterations):
    x.fill_(rank + 1)
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(x)
    us = (time.perf_counter() - start) * 1e6
    assert x[0] == ranks * (ranks + 1) / 2 and x[-1] == x[0]
    if i >= 0 and rank == 0:
        print(f"us {us:.3f}", flush=True)
dist.destroy_process_group()
