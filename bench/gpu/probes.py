#!/usr/bin/env python3
"""What torch says of this machine, as one JSON object.   probes.py device cuda|cpu | ipc | drive FOLDER BYTES

    device   versions, and rates: of a large matmul, of a copy within the device, of pinned copies each way and both
    ipc      may two processes on one GPU share memory, ordered by an interprocess event?
    drive    writes and reads of a file past the page cache (this one needs no torch)

Each in a process of its own, so that a hang or a crash ends it alone.
"""
import concurrent.futures
import contextlib
import json
import mmap
import os
import statistics
import sys
import time


def timed(torch, kind, function, repetitions):
    """Seconds of one call: the median of `repetitions` after two."""
    for _ in range(2):
        function()
    taken = []
    for _ in range(repetitions):
        if kind == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            function()
            end.record()
            end.synchronize()
            taken.append(begin.elapsed_time(end) / 1e3)
        else:
            begun = time.perf_counter()
            function()
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def device(kind):
    import torch

    found = {"torch": torch.__version__, "cuda": torch.version.cuda}
    small = kind != "cuda"
    if not small:
        properties = torch.cuda.get_device_properties(0)
        found.update(gpu=properties.name, gpus=torch.cuda.device_count(), gpu_bytes=properties.total_memory,
                     nccl=".".join(map(str, torch.cuda.nccl.version())), cudnn=torch.backends.cudnn.version())
    size = 512 if small else 8192
    a = torch.randn(size, size, device=kind).to(torch.float32 if small else torch.bfloat16)
    found["matmul_flops"] = 2 * size**3 / timed(torch, kind, lambda: a @ a, 5 if small else 10)
    nbytes = 1 << (24 if small else 31)
    source = torch.randint(0, 100, (nbytes,), dtype=torch.uint8, device=kind)
    target = torch.empty_like(source)
    found["copy_bytes_per_s"] = 2 * nbytes / timed(torch, kind, lambda: target.copy_(source), 5 if small else 10)
    if not small:
        del target
        nbytes = 1 << 28
        pinned = torch.randint(0, 100, (nbytes,), dtype=torch.uint8).pin_memory()
        source = source[:nbytes]
        target = torch.empty_like(source)
        back = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        found["to_device_bytes_per_s"] = nbytes / timed(torch, kind, lambda: target.copy_(pinned, non_blocking=True), 5)
        found["to_host_bytes_per_s"] = nbytes / timed(torch, kind, lambda: back.copy_(source, non_blocking=True), 5)
        streams = torch.cuda.Stream(), torch.cuda.Stream()

        def both():
            for stream in streams:
                stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(streams[0]):
                target.copy_(pinned, non_blocking=True)
            with torch.cuda.stream(streams[1]):
                back.copy_(source, non_blocking=True)
            for stream in streams:
                torch.cuda.current_stream().wait_stream(stream)

        found["both_ways_bytes_per_s"] = 2 * nbytes / timed(torch, kind, both, 5)
    print(json.dumps(found), flush=True)


def ipc_peer(memory, event, ready, done):
    """In the other process: writes after the event, on the device, and says so by an event of its own."""
    import torch

    ready.wait(20)
    tensor = memory.get()
    torch.cuda.Event.from_ipc_handle(torch.device("cuda", 0), event).wait()
    tensor.add_(1)
    torch.cuda.synchronize()
    done.set()
    del tensor
    time.sleep(0.5)  # the handle's owner reads first


def ipc():
    """CUDA IPC between two processes on one GPU: the memory of one written by the other, ordered by an interprocess event."""
    import torch
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    tensor = torch.full((1 << 20,), 41, dtype=torch.int32, device="cuda")
    event = torch.cuda.Event(interprocess=True)
    handle = event.ipc_handle()
    event.record()
    torch.cuda.synchronize()
    memory, ready, done = context.Queue(), context.Event(), context.Event()
    peer = context.Process(target=ipc_peer, args=(memory, handle, ready, done), daemon=True)
    peer.start()
    memory.put(tensor)
    ready.set()
    answered = done.wait(40)
    print(json.dumps({"ipc": bool(answered and (tensor == 42).all().item())}), flush=True)
    peer.join(5)


def drive(folder, size):
    """Bytes a second of writes and reads past the page cache, 8 MiB each, four at a time."""
    nbytes, block, path = int(size), 8 << 20, os.path.join(folder, "gpu_check.drive")
    buffers = [mmap.mmap(-1, block) for _ in range(4)]
    for buffer in buffers:
        buffer.write(os.urandom(1 << 20) * 8)
    rates = {}
    try:
        flag = os.O_DIRECT
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | flag))
        except OSError:
            flag = 0
        file = os.open(path, os.O_RDWR | os.O_CREAT | flag)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for name, call in (("write", os.pwritev), ("read", os.preadv)):
                begun = time.perf_counter()
                list(pool.map(lambda i: call(file, [buffers[i % 4]], i * block), range(nbytes // block)))
                if name == "write":
                    os.fsync(file)
                rates[f"{name}_bytes_per_s"] = nbytes / (time.perf_counter() - begun)
        os.close(file)
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)
    print(json.dumps({**rates, "direct": flag != 0, "folder": folder}), flush=True)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:] or [""]
    probes = {"device": device, "ipc": ipc, "drive": drive}
    if name not in probes:
        sys.exit(__doc__)
    probes[name](*arguments)
