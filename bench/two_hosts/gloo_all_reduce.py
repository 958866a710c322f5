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
times = []
for i in range(-3, iterations):
    x.fill_(rank + 1)
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(x)
    times.append((time.perf_counter() - start) * 1e6)
    assert x[0] == ranks * (ranks + 1) / 2 and x[-1] == x[0]
slowest = torch.tensor(times[3:], dtype=torch.float64)
dist.all_reduce(slowest, dist.ReduceOp.MAX)
if rank == 0:
    print("\n".join(f"us {us:.3f}" for us in slowest.tolist()))
dist.destroy_process_group()
