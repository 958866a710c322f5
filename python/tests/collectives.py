"""Random collectives, and those at the edges, against what they are defined to give: exact small integers.

    python collectives.py [--cases 300] [--seed 1] [--ranks 1,2,3,4] [--only NAME]
"""

import argparse
import datetime
import functools
import operator
import os
import random
import sys
import threading
import time

import torch
import torch.distributed as dist
from counting_thread import FEWEST, PAUSE, counts_during
from ranks import import_before_fork, run_checks

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
REDUCED = FLOATS + INTEGERS + [torch.bool]
MOVED = REDUCED + COMPLEX + [torch.float8_e4m3fn]
OP = dist.ReduceOp
OPEN = 8  # asynchronous operations that a rank leaves open at a time

options = argparse.Namespace(cases=300, seed=1, device="cpu")


def whole_numbers(shape, seed, high=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, high, shape, generator=generator)


def given(shape, dtype, seed, high=4):
    """What the rank with this seed gives: any rank can make it."""
    real = whole_numbers(shape, seed, high).to(torch.float32)
    return torch.complex(real, whole_numbers(shape, seed + 1, high).float()).to(dtype) if dtype in COMPLEX else real.to(dtype)


def placed(tensor):
    return tensor.to(options.device)


def exact(dtype):
    """The type in which a value is made before it is cast: such a one can be multiplied and cut."""
    return dtype if dtype in COMPLEX else torch.float32


def strided(tensor, kind):
    """Returns a tensor of the same values with other strides, on the device of the test."""
    tensor = placed(tensor)
    if kind == "transposed" and tensor.dim() == 2:
        return tensor.t().contiguous().t()
    if kind == "gaps" and tensor.dim() > 0:
        wide = torch.zeros((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), dtype=tensor.dtype, device=tensor.device)
        view = wide[..., 1::2]
        view.copy_(tensor)
        return view
    if kind == "offset":
        flat = torch.zeros(tensor.numel() + 3, dtype=tensor.dtype, device=tensor.device)
        view = flat[3:].view(tensor.shape)
        view.copy_(tensor)
        return view
    return tensor.clone()


def same(a, b):
    a, b = a.cpu(), b.cpu()
    if a.dtype == torch.float8_e4m3fn:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    assert a.shape == b.shape and torch.equal(a.contiguous(), b.contiguous()), (a, b)


def all_same(some, others):
    for a, b in zip(some, others, strict=True):
        same(a, b)


def ops_of(dtype):
    if dtype == torch.bool:
        return [OP.SUM, OP.PRODUCT, OP.MIN, OP.MAX, OP.BAND, OP.BOR, OP.BXOR]
    if dtype in FLOATS:
        return [OP.SUM, OP.AVG, OP.PRODUCT, OP.MIN, OP.MAX, "premul"]
    if dtype in COMPLEX:
        return [OP.SUM, OP.AVG, "premul"]
    return [OP.SUM, OP.PRODUCT, OP.MIN, OP.MAX, OP.BAND, OP.BOR, OP.BXOR]


def reduced(op, tensors, dtype):
    """The definition, in whole numbers or doubles."""
    wide = torch.int64 if dtype in INTEGERS or dtype == torch.bool else torch.complex128 if dtype in COMPLEX else torch.float64
    wides = [tensor.to(torch.float32).to(wide) if dtype not in COMPLEX else tensor.to(wide) for tensor in tensors]
    if op == "premul":
        return (0.5 * sum(wides)).to(dtype)
    if op == OP.AVG:
        return (sum(wides) / len(wides)).to(dtype)
    two = {
        OP.SUM: torch.add, OP.PRODUCT: torch.mul, OP.MIN: torch.minimum, OP.MAX: torch.maximum,
        OP.BAND: torch.bitwise_and, OP.BOR: torch.bitwise_or, OP.BXOR: torch.bitwise_xor,
    }[op]  # fmt: skip
    if dtype == torch.bool:
        two = {OP.SUM: torch.maximum, OP.PRODUCT: torch.minimum}.get(op, two)
    return functools.reduce(two, wides).to(dtype)


def torch_op(op):
    return dist._make_nccl_premul_sum(0.5) if op == "premul" else op


def inputs_of(op, shape, dtype, ranks, seed):
    """Values whose results every dtype holds exactly: an average's are multiples of the number of ranks."""
    tensors = [given(shape, exact(dtype), seed + rank, 3 if op == OP.PRODUCT else 4) for rank in range(ranks)]
    if op == OP.AVG:
        tensors = [tensor * ranks for tensor in tensors]
    return [tensor.to(dtype) for tensor in tensors]


class Case:
    """One random collective: what it is of, on which group, and how it is waited for."""

    def __init__(self, chance, rank, ranks, groups, pending):
        self.chance, self.pending = chance, pending
        self.shape = chance.choice([(), (0,), (1,), (7,), (3, 5), (2, 3, 4), (1000,), (64, 33)])
        self.stride = [chance.choice(["plain", "transposed", "gaps", "offset"]) for _ in range(2 * ranks)]
        self.seed = chance.randrange(1 << 30)
        members, self.group = chance.choice(groups)
        self.asynchronous = chance.random() < 0.5
        self.by_future = chance.random() < 0.3
        self.member = rank in members
        self.rank = members.index(rank) if self.member else -1
        self.members, self.ranks = members, len(members)
        self.root = chance.randrange(self.ranks)
        self.root_of_world = members[self.root]

    def layout(self, tensor, k=0):
        return strided(tensor, self.stride[self.rank + k])

    def then(self, work, check):
        """Runs check() when the operation has ended: now, or where it is asynchronous at some later case."""
        if not self.asynchronous:
            return check()

        def wait():
            work.get_future().wait() if self.by_future else work.wait()
            check()

        self.pending.append(wait)

    @property
    def how(self):
        return {"group": self.group, "async_op": self.asynchronous}


def all_reduce(c):
    dtype = c.chance.choice(REDUCED + COMPLEX)
    op = c.chance.choice(ops_of(dtype))
    if not c.member:
        return
    every = inputs_of(op, c.shape, dtype, c.ranks, c.seed)
    x = c.layout(every[c.rank])
    c.then(dist.all_reduce(x, torch_op(op), **c.how), lambda: same(x, reduced(op, every, dtype)))


def reduce(c):
    dtype = c.chance.choice(REDUCED + COMPLEX)
    op = c.chance.choice(ops_of(dtype))
    if not c.member:
        return
    every = inputs_of(op, c.shape, dtype, c.ranks, c.seed)
    x = c.layout(every[c.rank])
    work = dist.reduce(x, c.root_of_world, torch_op(op), **c.how)
    c.then(work, lambda: same(x, reduced(op, every, dtype)) if c.rank == c.root else None)


def broadcast(c):
    dtype = c.chance.choice(MOVED)
    if not c.member:
        return
    want = given(c.shape, dtype, c.seed)
    x = c.layout(want if c.rank == c.root else torch.zeros(c.shape).to(dtype))
    c.then(dist.broadcast(x, c.root_of_world, **c.how), lambda: same(x, want))


def all_gather(c):
    dtype = c.chance.choice(MOVED)
    uneven = c.chance.random() < 0.4 and len(c.shape) > 0
    if not c.member:
        return
    shapes = [(c.shape[0] + k % 3, *c.shape[1:]) if uneven else c.shape for k in range(c.ranks)]
    every = [given(shapes[k], dtype, c.seed + k) for k in range(c.ranks)]
    outs = [c.layout(torch.zeros(shape).to(dtype), 1) for shape in shapes]
    c.then(dist.all_gather(outs, c.layout(every[c.rank]), **c.how), lambda: all_same(outs, every))


def all_gather_into_tensor(c):
    dtype = c.chance.choice(MOVED)
    stacked = c.chance.random() < 0.5
    if not c.member:
        return
    shape = c.shape or (1,)
    every = [given(shape, dtype, c.seed + k) for k in range(c.ranks)]
    want = torch.stack([t.view(torch.uint8) for t in every]).view(dtype) if dtype == torch.float8_e4m3fn else torch.stack(every)
    if not stacked:
        want = want.reshape(c.ranks * shape[0], *shape[1:])
    out = c.layout(torch.zeros(want.shape).to(dtype), 1)
    c.then(dist.all_gather_into_tensor(out, c.layout(every[c.rank]), **c.how), lambda: same(out, want))


def gather(c):
    dtype = c.chance.choice(MOVED)
    if not c.member:
        return
    every = [given(c.shape, dtype, c.seed + k) for k in range(c.ranks)]
    outs = [c.layout(torch.zeros(c.shape).to(dtype), k) for k in range(c.ranks)] if c.rank == c.root else None
    work = dist.gather(c.layout(every[c.rank]), outs, c.root_of_world, **c.how)
    c.then(work, lambda: all_same(outs, every) if c.rank == c.root else None)


def scatter(c):
    dtype = c.chance.choice(MOVED)
    if not c.member:
        return
    every = [given(c.shape, dtype, c.seed + k) for k in range(c.ranks)]
    out = c.layout(torch.zeros(c.shape).to(dtype))
    parts = [c.layout(t, 1) for t in every] if c.rank == c.root else None
    c.then(dist.scatter(out, parts, c.root_of_world, **c.how), lambda: same(out, every[c.rank]))


def reduce_scatter(c):
    dtype = c.chance.choice(REDUCED + COMPLEX)
    op = c.chance.choice(ops_of(dtype))
    uneven = c.chance.random() < 0.4 and len(c.shape) > 0
    if not c.member:
        return
    shapes = [(c.shape[0] + k % 3, *c.shape[1:]) if uneven else c.shape for k in range(c.ranks)]
    every = [inputs_of(op, shapes[k], dtype, c.ranks, c.seed + 100 * k) for k in range(c.ranks)]  # [part][from]
    out = c.layout(torch.zeros(shapes[c.rank]).to(dtype))
    parts = [c.layout(every[k][c.rank], 1) for k in range(c.ranks)]
    work = dist.reduce_scatter(out, parts, torch_op(op), **c.how)
    c.then(work, lambda: same(out, reduced(op, every[c.rank], dtype)))


def reduce_scatter_tensor(c):
    dtype = c.chance.choice(REDUCED + COMPLEX)
    op = c.chance.choice(ops_of(dtype))
    if not c.member:
        return
    shape = c.shape or (1,)
    every = inputs_of(op, (c.ranks * shape[0], *shape[1:]), dtype, c.ranks, c.seed)
    out = c.layout(torch.zeros(shape).to(dtype))
    work = dist.reduce_scatter_tensor(out, c.layout(every[c.rank], 1), torch_op(op), **c.how)
    c.then(work, lambda: same(out, reduced(op, every, dtype)[c.rank * shape[0] : (c.rank + 1) * shape[0]]))


def all_to_all_single(c):
    dtype = c.chance.choice(MOVED)
    uneven = c.chance.random() < 0.6
    if not c.member:
        return
    rows = lambda f, t: (f + 2 * t) % 4 if uneven else 2  # noqa: E731
    tail = c.shape[1:]
    part = lambda f, t: given((rows(f, t), *tail), exact(dtype), c.seed + f * c.ranks + t)  # noqa: E731
    x = torch.cat([part(c.rank, t) for t in range(c.ranks)]).to(dtype)
    want = torch.cat([part(f, c.rank) for f in range(c.ranks)]).to(dtype)
    out = c.layout(torch.zeros(want.shape).to(dtype), 1)
    splits = ([rows(f, c.rank) for f in range(c.ranks)], [rows(c.rank, t) for t in range(c.ranks)]) if uneven else (None, None)
    c.then(dist.all_to_all_single(out, c.layout(x), *splits, **c.how), lambda: same(out, want))


def all_to_all(c):
    dtype = c.chance.choice(MOVED)
    if not c.member:
        return
    part = lambda f, t: given(((f + t) % 3, 4), dtype, c.seed + f * c.ranks + t)  # noqa: E731
    outs = [c.layout(torch.zeros((f + c.rank) % 3, 4).to(dtype), f) for f in range(c.ranks)]
    work = dist.all_to_all(outs, [c.layout(part(c.rank, t), t) for t in range(c.ranks)], **c.how)
    c.then(work, lambda: all_same(outs, [part(f, c.rank) for f in range(c.ranks)]))


def coalesced(c):
    dtypes = [c.chance.choice(FLOATS + INTEGERS + COMPLEX) for _ in range(3)]
    kind = c.chance.choice(["all_reduce", "all_gather", "reduce_scatter"])
    if not c.member:
        return
    shape = c.shape or (1,)
    whole = (c.ranks * shape[0], *shape[1:])
    small, large = [], []
    for i, dtype in enumerate(dtypes):
        seed = c.seed + 1000 * i
        small.append(inputs_of(OP.SUM, shape, dtype, c.ranks, seed))
        large.append(inputs_of(OP.SUM, whole, dtype, c.ranks, seed))
    if kind == "all_reduce":
        xs = [c.layout(every[c.rank], i % 2) for i, every in enumerate(small)]
        with dist._coalescing_manager(group=c.group, async_ops=c.asynchronous) as manager:
            for x in xs:
                dist.all_reduce(x, group=c.group)
        wants = [reduced(OP.SUM, every, dtype) for every, dtype in zip(small, dtypes)]
    elif kind == "all_gather":
        xs = [c.layout(torch.zeros(whole).to(dtype), i % 2) for i, dtype in enumerate(dtypes)]
        with dist._coalescing_manager(group=c.group, async_ops=c.asynchronous) as manager:
            for x, every in zip(xs, small):
                dist.all_gather_into_tensor(x, placed(every[c.rank]), group=c.group)
        wants = [torch.cat(every) for every in small]
    else:
        xs = [c.layout(torch.zeros(shape).to(dtype), i % 2) for i, dtype in enumerate(dtypes)]
        with dist._coalescing_manager(group=c.group, async_ops=c.asynchronous) as manager:
            for x, every in zip(xs, large):
                dist.reduce_scatter_tensor(x, placed(every[c.rank]), group=c.group)
        wants = [
            reduced(OP.SUM, every, dtype)[c.rank * shape[0] : (c.rank + 1) * shape[0]]
            for every, dtype in zip(large, dtypes)
        ]
    c.by_future = False  # what the manager gives has none
    c.then(manager, lambda: all_same(xs, wants))


def messages(c):
    """Each member sends to the next, by tags in another order than they are received in, and to itself."""
    dtype = c.chance.choice(MOVED)
    if not c.member:
        return
    to, source = c.members[(c.rank + 1) % c.ranks], c.members[(c.rank - 1) % c.ranks]
    part = lambda f, tag: given(c.shape, dtype, c.seed + 10 * f + tag)  # noqa: E731
    sends = [dist.isend(c.layout(part(c.rank, tag)), to, c.group, tag) for tag in (1, 2, 3)]
    outs = {tag: c.layout(torch.zeros(c.shape).to(dtype), 1) for tag in (3, 1, 2)}
    receives = [dist.irecv(out, source, c.group, tag) for tag, out in outs.items()]
    c.asynchronous = True
    for work, (tag, out) in zip(receives, outs.items()):
        c.then(work, lambda out=out, tag=tag: same(out, part((c.rank - 1) % c.ranks, tag)))
    for work in sends:
        c.then(work, lambda: None)


KINDS = [
    all_reduce, reduce, broadcast, all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter,
    reduce_scatter_tensor, all_to_all_single, all_to_all, coalesced, messages,
]  # fmt: skip


def random_collectives(rank, ranks):
    chance = random.Random(options.seed)
    lists = [list(range(ranks)), [0, ranks - 1] if ranks > 2 else [ranks - 1], list(range(ranks))[::-1][:2][::-1]]
    groups = [(members, dist.new_group(members)) for members in lists]
    own = random.Random(rank)  # each rank waits in an order of its own
    pending, most = [], 0
    for number in range(options.cases):
        kind = chance.choice(KINDS)
        case = Case(random.Random(chance.randrange(1 << 60)), rank, ranks, groups, pending)
        try:
            kind(case)
            most = max(most, len(pending))
            while len(pending) > (own.randrange(OPEN + 1) if number + 1 < options.cases else 0):
                pending.pop(own.randrange(len(pending)))()
        except BaseException as error:
            raise AssertionError(f"case {number} with --seed {options.seed}, or one before: {kind.__name__}") from error
    assert most >= OPEN, most


def every_type_is_reduced_or_refused(rank, ranks):
    for dtype in REDUCED + COMPLEX:
        for op in ops_of(dtype):
            every = inputs_of(op, (33,), dtype, ranks, 5)
            x = every[rank].clone()
            dist.all_reduce(x, torch_op(op))
            same(x, reduced(op, every, dtype))
    for x, op in [(torch.ones(3).to(torch.float8_e4m3fn), OP.SUM), (torch.ones(3, dtype=torch.int32), OP.AVG),
                  (torch.ones(3), OP.BAND), (torch.ones(3, dtype=torch.complex64), OP.MAX)]:  # fmt: skip
        try:
            dist.all_reduce(x, op)
        except (dist.DistBackendError, ValueError, RuntimeError):
            continue
        raise AssertionError(f"{op} of {x.dtype} was accepted")


def a_whole_that_the_ranks_do_not_divide_is_refused_by_all(rank, ranks):
    """Some ranks' own part would fit: one that took it would wait for the others."""
    whole = torch.zeros(2 * ranks + 1)
    for call in [lambda: dist.all_gather_into_tensor(whole, torch.ones(2)),
                 lambda: dist.reduce_scatter_tensor(torch.ones(2), whole)]:  # fmt: skip
        if ranks == 1:
            continue
        try:
            call()
        except (dist.DistBackendError, ValueError, RuntimeError) as error:
            assert f"parts of all {ranks} ranks" in str(error) and "fix:" in str(error), error
        else:
            raise AssertionError("it was accepted")
    x = torch.ones(3)
    dist.all_reduce(x)  # the group goes on
    same(x, torch.full((3,), float(ranks)))


def a_receive_from_any_rank_says_from_which(rank, ranks):
    if rank == 0:
        seen = set()
        for _ in range(ranks - 1):
            x = torch.zeros(4)
            sender = dist.recv(x, tag=9)
            assert x[0] == sender, (x, sender)
            seen.add(sender)
        assert seen == set(range(1, ranks))
    else:
        dist.send(torch.full((4,), float(rank)), 0, tag=9)
    x = torch.zeros(2)
    work = dist.isend(torch.ones(2), rank)
    dist.recv(x, rank)
    work.wait()
    assert x[0] == 1


def futures_may_issue_and_wait(rank, ranks):
    """PowerSGD's hook does so: a callback of one operation runs the next one, and waits for it."""
    x, results = torch.ones(1000), []

    def next_one(future):
        y = future.value()[0].clone()
        dist.all_reduce(y)
        return y

    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(8)]
    results = [work.get_future().then(next_one) for work in works[:1]]
    for work in works[1:]:
        work.wait()
    x = results[0].wait()
    assert x[0] == ranks * ranks, x[0]


def the_profiler_sees_operations(rank, ranks):
    """By gloo's names where it has one; once each."""
    one, to, source = torch.ones, (rank + 1) % ranks, (rank - 1) % ranks
    ones = lambda: [one(2) for _ in range(ranks)]  # noqa: E731
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(one(10))
        dist.all_reduce(one(10), async_op=True).wait()
        dist.broadcast(one(10), 0)
        dist.reduce(one(10), 0)
        dist.all_gather(ones(), one(2))
        dist.all_gather_into_tensor(one(2 * ranks), one(2))
        dist.gather(one(2), ones() if rank == 0 else None, 0)
        dist.scatter(one(2), ones() if rank == 0 else None, 0)
        dist.reduce_scatter(one(2), ones())
        dist.reduce_scatter_tensor(one(2), one(2 * ranks))
        dist.all_to_all_single(one(ranks), one(ranks))
        works = [dist.isend(one(2), to), dist.isend(one(2), to, tag=1), dist.irecv(one(2), source), dist.irecv(one(2), tag=1)]
        for work in works:
            work.wait()
        dist.barrier()
    names = [event.name.removeprefix("herd:") for event in profile.events() if event.name.startswith("herd:")]
    once = ["broadcast", "reduce", "all_gather", "_all_gather_base", "gather", "scatter", "reduce_scatter",
            "_reduce_scatter_base", "all_to_all", "recv", "recvAnySource", "barrier"]  # fmt: skip
    assert sorted(names) == sorted(2 * ["all_reduce", "send"] + once), names


def a_premultiplied_sum_takes_a_tensor(rank, ranks):
    x = torch.full((5,), float(rank + 1))
    dist.all_reduce(x, dist._make_nccl_premul_sum(torch.tensor([0.25])))
    same(x, torch.full((5,), ranks * (ranks + 1) / 8))


def coalesced_gathers_are_those_of_gloo(rank, ranks):
    gloo = dist.new_group(backend="gloo")
    inputs = [torch.full((3,), rank + 1.0), torch.arange(4.0).reshape(2, 2) - rank]
    found, wants = ([[torch.zeros_like(x) for x in inputs] for _ in range(ranks)] for _ in range(2))
    dist.all_gather_coalesced(found, inputs)
    dist.all_gather_coalesced(wants, inputs, group=gloo)
    later = [[torch.zeros_like(x) for x in inputs] for _ in range(ranks)]
    dist.all_gather_coalesced(later, inputs, async_op=True).wait()
    for outs in (found, later):
        for some, others in zip(outs, wants, strict=True):
            all_same(some, others)
    assert found[-1][0][0] == ranks
    dist.destroy_process_group(gloo)


def threads_issue_into_their_groups_and_one_for_all(rank, ranks):
    """Threads of a rank take turns in no order: what they issue into one group is the same for each."""
    own = [dist.new_group(list(range(ranks))) for _ in range(4)]
    shared = dist.new_group(list(range(ranks)))
    total, failures = ranks * (ranks + 1) / 2, []

    def issue(number):
        try:
            for step in range(20):
                x, y, z = (torch.full((size,), float(rank + 1)) for size in (100 + number + step, 7, 9))
                work = dist.all_reduce(x, group=own[number], async_op=True)
                with dist._coalescing_manager(group=own[number]):
                    dist.all_reduce(y, group=own[number])
                    dist.all_reduce(z, group=own[number])
                dist.all_reduce(y, group=shared)
                work.wait()
                assert x.eq(total).all() and z.eq(total).all() and y.eq(ranks * total).all(), (step, x, y, z)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=issue, args=(number,)) for number in range(len(own))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    for group in [*own, shared]:
        dist.destroy_process_group(group)


def a_wait_ends_in_time_and_the_operation_goes_on(rank, ranks):
    x = torch.full((3,), float(rank))
    work = dist.irecv(x, (rank - 1) % ranks)
    began = time.monotonic()
    try:
        work.wait(datetime.timedelta(seconds=0.2))
    except dist.DistBackendError as error:
        assert " Timed out " in str(error) and "200 ms" in str(error), error
        assert 0.2 <= time.monotonic() - began < 2, time.monotonic() - began
    else:
        raise AssertionError("it did not wait")
    dist.barrier()
    send = dist.isend(torch.full((3,), 10.0 + rank), (rank + 1) % ranks)
    assert work.wait(datetime.timedelta(seconds=20)) and x[0] == 10 + (rank - 1) % ranks, x
    send.wait()


def other_threads_run_meanwhile(rank, ranks):
    """In rank 0, while it waits in an operation to which rank 1 comes late."""
    x, gathered = torch.ones(1000), torch.ones(ranks * 1000)
    waits = {
        "a synchronous all-reduce": lambda: dist.all_reduce(x),
        "a wait for one": lambda: dist.all_reduce(x, async_op=True).wait(),
        "an all-gather": lambda: dist.all_gather_into_tensor(gathered, x),
        "a barrier": dist.barrier,
        "a message": lambda: dist.send(x, 0) if rank else dist.recv(x, 1),
        "a future": lambda: dist.all_reduce(x, async_op=True).get_future().wait(),
    }
    for name, wait in waits.items() if ranks == 2 else ():
        dist.barrier()
        if rank == 1:
            time.sleep(PAUSE)
            wait()
        else:
            counted = counts_during(wait)
            assert counted >= FEWEST, f"{name} holds the interpreter: {counted} counts in {PAUSE} s"


def members_make_groups_among_themselves(rank, ranks):
    """The others do not call new_group, and make another group meanwhile."""
    mine = list(range(ranks // 2)) if rank < ranks // 2 else list(range(ranks // 2, ranks))
    group = dist.new_group(mine, use_local_synchronization=True)
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    same(x, torch.full((3,), float(len(mine))))


def sparse_gradients_are_summed(rank, ranks):
    indices = torch.tensor([[rank, ranks]])
    x = torch.sparse_coo_tensor(indices, torch.full((2, 3), float(rank + 1)), (ranks + 1, 3))
    dist.all_reduce(x)
    dense = x.to_dense()
    for r in range(ranks):
        assert dense[r].tolist() == [r + 1.0] * 3, dense
    assert dense[ranks][0] == ranks * (ranks + 1) / 2


def objects_travel(rank, ranks):
    gathered = [None] * ranks
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    assert [one["rank"] for one in gathered] == list(range(ranks))
    objects = ["a", {"b": 2}] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects)
    assert objects == ["a", {"b": 2}]
    out = [None]
    dist.scatter_object_list(out, list(range(ranks)) if rank == 0 else None)
    assert out == [rank]
    gathered = [None] * ranks if rank == 0 else None
    dist.gather_object(rank, gathered)
    assert rank != 0 or gathered == list(range(ranks))


def functional_collectives_are_right(rank, ranks):
    import torch.distributed._functional_collectives as functional

    x = torch.arange(4.0 * ranks).reshape(2 * ranks, 2) + rank
    everyone = list(range(ranks))
    total = sum(torch.arange(4.0 * ranks).reshape(2 * ranks, 2) + r for r in range(ranks))
    same(functional.all_reduce(x, "sum", everyone) + 0, total)
    same(functional.all_reduce(x, "avg", everyone) + 0, total / ranks)
    whole = torch.cat([torch.arange(4.0 * ranks).reshape(2 * ranks, 2) + r for r in range(ranks)])
    same(functional.all_gather_tensor(x, 0, everyone) + 0, whole)
    same(functional.reduce_scatter_tensor(x, "sum", 0, everyone) + 0, total[2 * rank : 2 * rank + 2])
    same(functional.all_to_all_single(x, None, None, everyone) + 0,
         torch.cat([(torch.arange(4.0 * ranks).reshape(2 * ranks, 2) + r)[2 * rank : 2 * rank + 2] for r in range(ranks)]))  # fmt: skip
    several = functional.all_reduce_coalesced([x, x.double()], "sum", everyone)
    same(several[1] + 0, total.double())


def compiled_programs_run(rank, ranks):
    if ranks != 3 and "HERD_FULL_TESTS" not in os.environ:  # half a second of CPU a rank
        return
    import torch.distributed._functional_collectives as functional

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x):
        return functional.all_reduce(x * 2, "sum", list(range(ranks))).relu()

    assert step(torch.ones(5) * (rank + 1))[0] == ranks * (ranks + 1)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        whole = functional.all_gather_tensor_autograd(2 * x, 0, dist.group.WORLD)
        sums = functional.reduce_scatter_tensor_autograd(whole * whole, "sum", 0, dist.group.WORLD)
        return sums.dot(torch.ones(3))  # whose gradient is contiguous: torch 2.11 gathers no other

    x = (torch.arange(3.0) + rank).requires_grad_()
    loss(x).backward()  # the sum over ranks of (2x)^2, ranks times
    same(x.grad, 8 * ranks * x.detach())


def monitored_barriers_pass(rank, ranks):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.name() == "herd"
    dist.barrier()
    dist.barrier(async_op=True).wait()
    dist.group.WORLD.monitored_barrier() if hasattr(dist.group.WORLD, "monitored_barrier") else None


CHECKS = {
    check.__name__: check
    for check in [
        every_type_is_reduced_or_refused, a_receive_from_any_rank_says_from_which,
        a_whole_that_the_ranks_do_not_divide_is_refused_by_all, futures_may_issue_and_wait,
        the_profiler_sees_operations, a_premultiplied_sum_takes_a_tensor, coalesced_gathers_are_those_of_gloo,
        threads_issue_into_their_groups_and_one_for_all, a_wait_ends_in_time_and_the_operation_goes_on,
        other_threads_run_meanwhile, members_make_groups_among_themselves, sparse_gradients_are_summed, objects_travel,
        functional_collectives_are_right, compiled_programs_run, monitored_barriers_pass, random_collectives,
    ]
}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", default="1,2,3,4")
    parser.add_argument("--only", default="")
    parser.parse_args(namespace=options)
    import_before_fork()
    sizes = [int(size) for size in options.ranks.split(",")]
    sys.exit(0 if run_checks(CHECKS, sizes, options.only, within=600.0) else 1)
