"""Collectives and training on tensors of a device, over herd. The device is the stand-in "later" (tests/device/later_device.h):
its work runs late and out of order, and its memory is NaN before and after its time, so a wait that is missing is seen.

    python device.py LIBRARY [--cases 150] [--seed 1] [--ranks 1,2,3] [--only NAME]
    LIBRARY: the device's, build/release/lib/libherd_later_python.so
"""

import argparse
import ctypes
import sys
import types

import collectives
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import training
from ranks import import_before_fork, run_checks
from torch.nn.parallel import DistributedDataParallel as DDP

DEVICE = "later"
_library = None


def library():
    """Gives torch the device, once a process: it has threads, which a fork would lose."""
    global _library
    if _library is None:
        _library = ctypes.CDLL(options.library)
        _library.herd_later_synchronisations.restype = ctypes.c_int64
        _library.herd_later_install(ctypes.c_uint64(options.seed))
        torch._register_device_module(DEVICE, _device_module())
        dist.Backend.backend_capability["herd"] = ["cpu", "cuda", DEVICE]  # as a device's own package would
    return _library


def _device_module():
    """What FSDP2 and others look for in torch.later."""
    module = types.ModuleType(f"torch.{DEVICE}")
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 1  # torch.accelerator asks here
    module.current_device = lambda: 0
    module.set_device = lambda index: None
    module.synchronize = lambda *_: torch.accelerator.synchronize()
    module.current_stream = lambda *_: torch.accelerator.current_stream()
    module.Stream = lambda *_, **__: torch.Stream(device=DEVICE)
    module.Event = lambda *_, **__: torch.Event(device=DEVICE)
    module.stream = lambda stream: stream
    module.manual_seed_all = lambda seed: None
    return module


def busy(times=6):
    """Gives the current stream work, so that what is enqueued next is not done for a while."""
    x = torch.ones(64, 64, device=DEVICE)
    for _ in range(times):
        x = x @ x / 64
    return x


def total(ranks):
    return ranks * (ranks + 1) / 2


def filled(value, *shape):
    return torch.full(shape or (300,), float(value), device=DEVICE)


def equal(tensor, value):
    tensor = tensor.cpu()
    assert torch.equal(tensor, torch.full_like(tensor, value)), (tensor, value)


def with_gaps(value):
    """A tensor, and one that is no dense memory: its elements are copied in and out."""
    return {"contiguous": filled(value), "strided": filled(value, 300, 2)[:, 0]}


def a_wait_holds_the_current_stream(rank, ranks):
    """Issued on one stream and waited for on another, or on the same: both come in the order of the program."""
    for kind in list(with_gaps(0)) * 10:  # the order of the streams is drawn by lot
        for waits_elsewhere in (False, True):
            issuing, waiting = torch.Stream(device=DEVICE), torch.Stream(device=DEVICE)
            with issuing:
                x = with_gaps(rank)[kind]
                x += busy()[0, 0]  # rank + 1, late
                work = dist.all_reduce(x, async_op=True)
                busy()
                if not waits_elsewhere:
                    work.wait()
                    y = x * 2
            if waits_elsewhere:
                with waiting:
                    work.wait()
                    y = x * 2
            with waiting if waits_elsewhere else issuing:
                equal(y, 2 * total(ranks))


def inputs_live_until_the_operation_is_done(rank, ranks):
    """The program drops its tensors, and its works, at once; their memory is NaN as soon as it is free."""
    for kind in with_gaps(0):
        for drops_work in (False, True):
            outs, works = [], []
            for number in range(6):
                out = torch.zeros(ranks * 300, device=DEVICE)
                busy(2)
                work = dist.all_gather_into_tensor(out, with_gaps(10 * number + rank)[kind], async_op=True)
                dist.all_reduce(filled(rank), async_op=True)  # whose result nobody wants
                outs.append(out)
                works.append(None if drops_work else work)
                del work
                filled(-1), busy(1)  # takes the memory that is free
            for work in works:
                work.wait() if work is not None else None
            dist.barrier()
            dist.all_reduce(filled(1))  # comes after all before it
            for number, out in enumerate(outs):
                for source, part in enumerate(out.split(300)):
                    equal(part, 10 * number + source)


def memory_of_another_stream_lives_until_results_are_copied(rank, ranks):
    """The program polls for the end, then drops the tensor, of whose stream the copy to it is not."""
    for number in range(20):
        shape = (300 + 64 * number, 2)  # no other free memory has this size
        x = filled(rank, *shape)
        torch.accelerator.synchronize()
        with torch.Stream(device=DEVICE):
            work = dist.all_reduce(x[:, 0], async_op=True)
            while not work.is_completed():
                pass
        del x, work
        torch.accelerator.current_stream().synchronize()  # the memory would be free now
        y = filled(7, *shape)
        torch.accelerator.synchronize()
        equal(y, 7)


def callbacks_of_futures_come_after(rank, ranks):
    for kind in list(with_gaps(0)) * 10:
        with torch.Stream(device=DEVICE):
            x = with_gaps(rank + 1)[kind]
            busy()
            future = dist.all_reduce(x, async_op=True).get_future()
        doubled = future.then(lambda f: f.value()[0] * 2)
        again = doubled.then(lambda f: _reduced(f.value() + 1))  # PowerSGD issues and waits in a callback, too
        y, z = doubled.wait(), again.wait()
        equal(y + 1, 2 * total(ranks) + 1)
        equal(z, ranks * (2 * total(ranks) + 1))


def _reduced(x):
    dist.all_reduce(x)
    return x


def an_issue_does_not_wait(rank, ranks):
    """Of the group's first collective the program waits for the others; later ones are enqueued."""
    dist.all_reduce(filled(1))
    engine = dist.group.WORLD._get_backend(torch.device(DEVICE)).device_engine
    assert engine.startswith("staged: no nccl: ") and engine.endswith("copies pass the host"), engine
    before = library().herd_later_synchronisations()
    works = []
    for kind in with_gaps(0):
        x = with_gaps(rank + 1)[kind]
        works.append((dist.all_reduce(x, async_op=True), x))
    out = torch.empty(ranks * 300, device=DEVICE)
    works.append((dist.all_gather_into_tensor(out, filled(total(ranks)), async_op=True), out))
    assert library().herd_later_synchronisations() == before, "the issue waits for the device"
    for work, x in works:
        work.wait()
        equal(x, total(ranks))
    x = with_gaps(rank + 1)["strided"]
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
    work.wait()
    equal(x, total(ranks))


def messages_are_exchanged(rank, ranks):
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    for kind in with_gaps(0):
        out = with_gaps(-1)[kind]
        x = with_gaps(rank)[kind]
        works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, out, source), dist.P2POp(dist.isend, x, to)])
        for work in works:
            work.wait()
        equal(out, source)
        if ranks > 1:
            back = with_gaps(-1)[kind]
            dist.send(out, source) if rank % 2 == 0 else dist.recv(back, to)
            dist.recv(back, to) if rank % 2 == 0 else dist.send(out, source)
            equal(back, rank)


def both_devices_share_a_group(rank, ranks):
    here, there = torch.full((5,), rank + 1.0), filled(rank + 1)
    works = [dist.all_reduce(x, async_op=True) for x in (there, here)]
    for work in works:
        work.wait()
    equal(here, total(ranks))
    equal(there, total(ranks))
    dist.barrier(device_ids=[0])
    part = dist.new_group(list(range(ranks)))  # of a group that has chosen how it moves bytes on the device
    x = filled(rank + 1)
    dist.all_reduce(x, group=part)
    equal(x, total(ranks))
    dist.destroy_process_group(part)


def objects_travel_on_the_device(rank, ranks):
    group = dist.new_group(backend=f"{DEVICE}:herd")
    gathered = [None] * ranks
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank}, group=group)
    assert [one["rank"] for one in gathered] == list(range(ranks))
    objects = ["a", {"b": 2}] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects, group=group)
    assert objects == ["a", {"b": 2}]
    dist.barrier(group=group)
    dist.destroy_process_group(group)


def device_that_has_no_driver_is_refused(rank, ranks):
    library().herd_later_remove_driver()
    for call in (lambda: dist.all_reduce(filled(1)), lambda: dist.isend(filled(1), rank)):
        try:
            call()
        except dist.DistBackendError as error:
            for words in (f"a tensor on {DEVICE}:0", "devices that herd has a driver for", "fix: tensor.cpu()", f"cpu:herd,{DEVICE}:"):
                assert words in str(error), error
        else:
            raise AssertionError("it was accepted")
    x = torch.ones(3)
    dist.all_reduce(x)
    equal(x, ranks)
    library().herd_later_install(ctypes.c_uint64(options.seed))


def ddp_is_that_of_the_cpu(rank, ranks):
    def trained(device, **settings):
        model = DDP(training.make_model().to(device), **settings)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(3):
            x, y = (training.rows_of(each, rank).to(device) for each in training.batch(ranks, step))
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    for settings in ({}, {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True}):
        found, wants = (trained(device, **settings) for device in (DEVICE, "cpu"))
        for one, want in zip(found, wants, strict=True):
            assert torch.equal(one, want), (one - want).abs().max()
    training.close(found, training.one_rank(ranks))


def fsdp2_is_that_of_the_cpu(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def trained(device):
        mesh = init_device_mesh(device, (ranks,))
        model = training.make_model().to(device)
        for layer in [*model, model]:
            if isinstance(layer, nn.Linear) or layer is model:
                fully_shard(layer, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for step in range(3):
            x, y = (training.rows_of(each, rank).to(device) for each in training.batch(ranks, step))
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            # FSDP2 allocates gradients on a stream of its own, which waits for this one before it reuses their memory.
            # The stand-in overwrites memory as soon as it is free.
            torch.accelerator.synchronize()
        return [p.full_tensor().detach().cpu() for p in model.parameters()]

    found, wants = trained(DEVICE), trained("cpu")
    training.close(found, wants, 1e-6)


def tensor_parallel_is_that_of_the_cpu(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def trained(device):
        mesh = init_device_mesh(device, (ranks,))
        torch.manual_seed(5)
        width = 12 * ranks
        model = nn.Sequential(nn.Linear(width, 48 * ranks), nn.GELU(), nn.Linear(48 * ranks, width))
        x = torch.randn(4, width)
        model = model.to(device)
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        model(x.to(device)).square().mean().backward()
        tensor = torch.arange(35.0).reshape(5, 7).to(device)
        moved = distribute_tensor(tensor, mesh, [Shard(0)]).redistribute(mesh, [Shard(1)])
        return [model[0].weight.grad.full_tensor().cpu(), moved.full_tensor().cpu()]

    training.close(trained(DEVICE), trained("cpu"), 1e-6)


options = argparse.Namespace(library="", cases=150, seed=1)

CHECKS = {
    check.__name__: check
    for check in [
        a_wait_holds_the_current_stream, inputs_live_until_the_operation_is_done,
        memory_of_another_stream_lives_until_results_are_copied, callbacks_of_futures_come_after,
        an_issue_does_not_wait, messages_are_exchanged, both_devices_share_a_group, objects_travel_on_the_device,
        collectives.every_type_is_reduced_or_refused, collectives.random_collectives, ddp_is_that_of_the_cpu,
        fsdp2_is_that_of_the_cpu, tensor_parallel_is_that_of_the_cpu, device_that_has_no_driver_is_refused,
    ]
}  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", default="1,2,3")
    parser.add_argument("--only", default="")
    parser.parse_args(namespace=options)
    collectives.options = argparse.Namespace(cases=options.cases, seed=options.seed, device=DEVICE)
    import_before_fork()
    passed = True
    for size in [int(size) for size in options.ranks.split(",")]:
        backend = f"cpu:herd,{DEVICE}:herd" if size == 2 else "herd"
        passed &= run_checks(CHECKS, [size], options.only, within=300.0, prepare=library, backend=backend)
    sys.exit(0 if passed else 1)
