"""PyTorch's ways to train in parallel, over herd: against gloo, or one rank with the whole batch.

    python training.py [--ranks 2,3,4] [--only NAME] [--guide]     --guide: also the guide's examples
"""

import argparse
import copy
import math
import os
import sys
import tempfile

import guide
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from ranks import import_before_fork, run_checks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, ROWS = 24, 6  # rows of a rank
_gloo = None


def gloo():
    global _gloo
    _gloo = _gloo or dist.new_group(backend="gloo")
    return _gloo


def make_model(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, WIDTH))


def batch(ranks, step=0):
    """The whole batch: rank r trains on rows [r * ROWS, (r + 1) * ROWS)."""
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randn(ranks * ROWS, WIDTH, generator=generator), torch.randn(ranks * ROWS, WIDTH, generator=generator)


def rows_of(tensor, rank):
    return tensor[rank * ROWS : (rank + 1) * ROWS]


def one_rank(ranks, steps=3, rate=0.05, make=make_model, optimizer=torch.optim.SGD):
    """Returns the parameters after training on one rank with the whole batch."""
    model = make()
    optimizer = optimizer(model.parameters(), lr=rate)
    for step in range(steps):
        x, y = batch(ranks, step)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def train(model, rank, ranks, steps=3, rate=0.05, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=rate)
    for step in range(steps):
        x, y = batch(ranks, step)
        optimizer.zero_grad()
        y = rows_of(y, rank)
        F.mse_loss(model(rows_of(x, rank)).to(y.dtype), y).backward()  # torch 2.11 takes no two dtypes
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def gloo_mesh(*shape):
    """Returns a mesh like init_device_mesh()'s, whose groups are gloo's."""
    grid = torch.arange(math.prod(shape)).reshape(shape)
    groups = []
    for dim, size in enumerate(shape):
        lines = grid.movedim(dim, -1).reshape(-1, size).tolist()
        made = [(line, dist.new_group(line, backend="gloo")) for line in lines]
        groups += [group for line, group in made if dist.get_rank() in line]
    names = ("replicas", "shards")[-len(shape) :]
    return DeviceMesh.from_group(groups if len(shape) > 1 else groups[0], "cpu", mesh=grid, mesh_dim_names=names)


def as_close_as_gloo(found, over_gloo, wants, tolerance=1e-5):
    """Fails where herd's result is further from one rank's than gloo's is, or than the last bits of a float."""
    close(found, wants, tolerance)
    for a, b, want in zip(found, over_gloo, wants, strict=True):
        distance, bound = (a - want).abs().max().item(), (b - want).abs().max().item()
        assert distance <= 1.5 * bound + 4e-7 * want.abs().max().item(), f"{distance} from one rank, gloo {bound}"


def close(a, b, tolerance=1e-5):
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def same_on_all_ranks(tensors):
    """Fails where replicas differ in one bit."""
    for tensor in tensors:
        bits = tensor.detach().contiguous().flatten().view(torch.uint8)
        low, high = bits.clone(), bits.clone()
        dist.all_reduce(low, dist.ReduceOp.MIN, group=gloo())
        dist.all_reduce(high, dist.ReduceOp.MAX, group=gloo())
        assert torch.equal(low, high), "replicas differ"


def ddp(rank, ranks):
    found = train(DDP(make_model()), rank, ranks)
    close(found, one_rank(ranks))
    close(found, train(DDP(make_model(), process_group=gloo()), rank, ranks), 1e-6)
    same_on_all_ranks(found)
    small_buckets = train(DDP(make_model(), bucket_cap_mb=0.001, gradient_as_bucket_view=True), rank, ranks)
    close(small_buckets, found, 1e-6)
    close(train(DDP(make_model(), static_graph=True), rank, ranks), found, 1e-6)


def ddp_hooks(rank, ranks):
    def trained(group, hook, make_state):
        model = DDP(make_model(), process_group=group)
        model.register_comm_hook(make_state(group), hook)
        return train(model, rank, ranks, steps=4)

    for hook, make_state, tolerance in [
        (default_hooks.allreduce_hook, lambda group: group, 1e-6),
        (default_hooks.fp16_compress_hook, lambda group: group, 2e-3),
        (powerSGD_hook.powerSGD_hook,
         lambda group: powerSGD_hook.PowerSGDState(group, 2, start_powerSGD_iter=2, min_compression_rate=0.5), 1e-4),
    ]:  # fmt: skip
        found = trained(dist.group.WORLD, hook, make_state)
        close(found, trained(gloo(), hook, make_state), tolerance)
        same_on_all_ranks(found)


def ddp_join(rank, ranks):
    """Rank r has r batches more than rank 0: the others' shadow it."""
    model = DDP(make_model())
    with Join([model]):
        for step in range(2 + rank):
            x, y = batch(ranks, step)
            F.mse_loss(model(rows_of(x, rank)), rows_of(y, rank)).backward()
    reference = DDP(make_model(), process_group=gloo())
    with Join([reference]):
        for step in range(2 + rank):
            x, y = batch(ranks, step)
            F.mse_loss(reference(rows_of(x, rank)), rows_of(y, rank)).backward()
    if rank == ranks - 1:
        close([p.grad for p in model.parameters()], [p.grad for p in reference.parameters()], 1e-6)


def ddp_sparse_embedding(rank, ranks):
    def trained(group):
        torch.manual_seed(2)
        model = DDP(nn.EmbeddingBag(20, 5, sparse=True, mode="sum"), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.tensor([[rank, rank + 1, 7 + step]])).sum().backward()
            optimizer.step()
        return list(model.parameters())

    found = trained(dist.group.WORLD)
    close(found, trained(gloo()), 1e-6)
    same_on_all_ranks(found)


def sync_batch_norm_refuses_the_cpu(rank, ranks):
    """PyTorch has it for GPUs only: its own words, whatever the backend."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4))
    try:
        DDP(model)(torch.randn(3, 4))
    except ValueError as error:
        assert "GPU" in str(error), error
    else:
        raise AssertionError("accepted")


def zero_redundancy_optimizer(rank, ranks):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def trained(group):
        model = DDP(make_model(), process_group=group)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, process_group=group, lr=0.01)
        found = train(model, rank, ranks, optimizer=optimizer)
        optimizer.consolidate_state_dict(0)
        return found

    found = trained(dist.group.WORLD)
    as_close_as_gloo(found, trained(gloo()), one_rank(ranks, rate=0.01, optimizer=torch.optim.AdamW), 1e-4)
    same_on_all_ranks(found)


def sharded(mesh, policy=None, **options):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = make_model()
    policy = policy or MixedPrecisionPolicy()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, mp_policy=policy, **options)
    fully_shard(model, mesh=mesh, mp_policy=policy, **options)
    return model


def trained_whole(model, rank, ranks):
    return [p.full_tensor() for p in train(model, rank, ranks)]


def fsdp2(rank, ranks):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import MixedPrecisionPolicy

    mesh, peer = init_device_mesh("cpu", (ranks,)), gloo_mesh(ranks)
    wants = one_rank(ranks)
    for reshard in (True, False):
        model = sharded(mesh, reshard_after_forward=reshard)
        as_close_as_gloo(trained_whole(model, rank, ranks), trained_whole(sharded(peer), rank, ranks), wants)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    close(list(whole.values()), wants)
    again = sharded(mesh)
    set_model_state_dict(again, whole, options=StateDictOptions(full_state_dict=True))
    close([p.full_tensor() for p in again.parameters()], wants)

    x, y = batch(ranks)
    plain = make_model()
    F.mse_loss(plain(x), y).backward()
    norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.01)
    model = sharded(mesh)
    F.mse_loss(model(rows_of(x, rank)), rows_of(y, rank)).backward()
    found_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    close([found_norm.full_tensor()], [norm])
    close([p.grad.full_tensor() for p in model.parameters()], [p.grad for p in plain.parameters()])

    for reduce_dtype in (torch.float32, torch.bfloat16):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype)
        found, over_gloo = (trained_whole(sharded(each, policy), rank, ranks) for each in (mesh, peer))
        as_close_as_gloo(found, over_gloo, wants, 2e-2)
    half = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16)
    found, over_gloo = (trained_whole(sharded(each, half), rank, ranks) for each in (mesh, peer))
    as_close_as_gloo(found, over_gloo, wants, 2e-2)

    model = sharded(mesh)
    model.set_gradient_divide_factor(float(ranks))  # PREMUL_SUM, which gloo refuses
    close(trained_whole(model, rank, ranks), wants)


def hybrid_fsdp2(rank, ranks):
    if ranks < 4 or ranks % 2:  # a replica of one rank, or one replica, is no hybrid
        return
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicas", "shards"))
    found, over_gloo = (trained_whole(sharded(each), rank, ranks) for each in (mesh, gloo_mesh(2, ranks // 2)))
    as_close_as_gloo(found, over_gloo, one_rank(ranks))


def compiled_ddp(rank, ranks):
    """Forward and backward, with the hooks of DDP inside."""
    if ranks != 3 and "HERD_FULL_TESTS" not in os.environ:  # a second of CPU a rank
        return
    found, over_gloo = (
        train(torch.compile(DDP(make_model(), process_group=group), backend="aot_eager"), rank, ranks)
        for group in (dist.group.WORLD, gloo())
    )
    as_close_as_gloo(found, over_gloo, one_rank(ranks))
    same_on_all_ranks(found)


def tensor_parallel(rank, ranks):
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module,
    )  # fmt: skip

    mesh, peer = init_device_mesh("cpu", (ranks,)), gloo_mesh(ranks)
    heads = 12 * ranks

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(heads), nn.Linear(heads, 48), nn.Linear(48, heads)

        def forward(self, x):
            return self.down(F.gelu(self.up(self.norm(x))))

    def make():
        torch.manual_seed(5)
        return Block()

    torch.manual_seed(6)
    x, target = torch.randn(2, 4 * ranks, heads), torch.randint(0, heads, (2 * 4 * ranks,))
    plain = make()
    want = F.cross_entropy(plain(x).flatten(0, 1), target)
    want.backward()

    def trained(mesh, sequence):
        """Returns the output and a gradient, whole."""
        model = make()
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        if sequence:
            plan = {
                "norm": SequenceParallel(),
                "up": ColwiseParallel(input_layouts=Shard(1)),
                "down": RowwiseParallel(output_layouts=Shard(1)),
            }
        parallelize_module(model, mesh, plan)
        out = model(distribute_tensor(x, mesh, [Shard(1)]) if sequence else x)
        if sequence:
            out = DTensor.from_local(out.to_local() if isinstance(out, DTensor) else out, mesh, [Shard(1)]).full_tensor()
        F.cross_entropy(out.flatten(0, 1), target).backward()
        return [out.detach(), model.up.weight.grad.full_tensor()]

    def parallel_loss(mesh):
        logits = distribute_tensor(plain(x).flatten(0, 1).detach(), mesh, [Shard(1)]).requires_grad_()
        with loss_parallel():
            loss = F.cross_entropy(logits, target)
            loss.backward()
        loss = loss.full_tensor() if isinstance(loss, DTensor) else loss
        return [loss.detach(), logits.grad.full_tensor()]

    for sequence in (False, True):
        wants = [plain(x).detach(), plain.up.weight.grad]
        as_close_as_gloo(trained(mesh, sequence), trained(peer, sequence), wants)
    logits = plain(x).flatten(0, 1).detach().requires_grad_()
    F.cross_entropy(logits, target).backward()
    as_close_as_gloo(parallel_loss(mesh), parallel_loss(peer), [want.detach(), logits.grad])

    tensor = torch.arange(5.0 * 7).reshape(5, 7)  # uneven shards
    shard = distribute_tensor(tensor, mesh, [Shard(0)])
    assert torch.equal(shard.redistribute(mesh, [Shard(1)]).full_tensor(), tensor)
    assert torch.equal(shard.redistribute(mesh, [Replicate()]).to_local(), tensor)


def pipelining(rank, ranks):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    def layers():
        torch.manual_seed(8)
        return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(ranks)]

    x, y = batch(2 * ranks)
    whole = nn.Sequential(*layers())
    F.mse_loss(whole(x), y).backward()

    def trained(schedule_class, group):
        layer = layers()[rank]
        stage = PipelineStage(layer, rank, ranks, torch.device("cpu"), group=group)
        schedule = schedule_class(stage, 2 * ranks, loss_fn=F.mse_loss)
        losses = []
        if rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        return [layer[0].weight.grad]

    for schedule_class in (Schedule1F1B, ScheduleGPipe):
        found, over_gloo = (trained(schedule_class, group) for group in (dist.group.WORLD, gloo()))
        as_close_as_gloo(found, over_gloo, [whole[rank][0].weight.grad], 1e-4)


def zero_bubble_pipelining(rank, ranks):
    """Each rank has two stages, as a V: the first and the last are on rank 0."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble

    def layers():
        torch.manual_seed(8)
        return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2 * ranks)]

    x, y = batch(2 * ranks)
    whole = nn.Sequential(*layers())
    want = F.mse_loss(whole(x), y)
    want.backward()
    mine = [rank, 2 * ranks - 1 - rank]

    def trained(group):
        """Returns the gradients of this rank's stages and, on rank 0, the loss."""
        parts = [layers()[index] for index in mine]
        stages = [
            PipelineStage(part, index, 2 * ranks, torch.device("cpu"), group=group) for part, index in zip(parts, mine)
        ]
        schedule = ScheduleZBVZeroBubble(stages, 2 * ranks, loss_fn=F.mse_loss)
        losses = []
        if rank == 0:
            schedule.step(x, target=y, losses=losses)
        else:
            schedule.step()
        return [part[0].weight.grad for part in parts] + ([torch.stack(losses).mean().detach()] if rank == 0 else [])

    wants = [whole[index][0].weight.grad for index in mine] + ([want.detach()] if rank == 0 else [])
    # Before 2.13 torch sends the first message of the V's middle from a rank to itself, which gloo refuses.
    gloo_can = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
    as_close_as_gloo(trained(dist.group.WORLD), trained(gloo()) if gloo_can else wants, wants, 1e-4)


def whole_state(model, optimizer):
    """Returns the sharded state for DCP, and the same as whole tensors by name."""
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.tensor import DTensor

    weights, states = get_state_dict(model, optimizer)
    named = {("model", name): weight for name, weight in weights.items()}
    named |= {(name, key): value for name, each in states["state"].items() for key, value in each.items()}
    whole = {name: (value.full_tensor() if isinstance(value, DTensor) else value).clone() for name, value in named.items()}
    return {"model": weights, "optimizer": states}, whole


def checkpoints_between_world_sizes(rank, ranks):
    """What all ranks save of FSDP2 and AdamW, a group of one rank less loads; and the other way round."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from torch.distributed.device_mesh import DeviceMesh

    meshes = {size: DeviceMesh("cpu", torch.arange(size)) for size in (ranks, ranks - 1)}

    def fresh(size):
        model = sharded(meshes[size])
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    for saving, loading in ((ranks, ranks - 1), (ranks - 1, ranks)):
        folder = os.path.join(os.environ["HERD_TEST_FOLDER"], f"{saving}_to_{loading}")
        saved = [None]
        if rank < saving:
            model, optimizer = fresh(saving)
            train(model, rank, saving, steps=2, optimizer=optimizer)
            state, saved[0] = whole_state(model, optimizer)
            dcp.save(state, checkpoint_id=folder, process_group=meshes[saving].get_group())
        dist.broadcast_object_list(saved)
        if rank < loading:
            model, optimizer = fresh(loading)
            state, before = whole_state(model, optimizer)
            assert not any(torch.equal(before[name], value) for name, value in saved[0].items() if name[0] == "model")
            dcp.load(state, checkpoint_id=folder, process_group=meshes[loading].get_group())
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            _, found = whole_state(model, optimizer)
            assert len(found) == 4 * 6 and found.keys() == saved[0].keys(), found.keys()
            for name, value in saved[0].items():
                assert torch.equal(found[name], value), name
        dist.barrier()


CHECKS = {
    check.__name__: check
    for check in [
        ddp, ddp_hooks, ddp_join, ddp_sparse_embedding, sync_batch_norm_refuses_the_cpu, zero_redundancy_optimizer, fsdp2,
        hybrid_fsdp2, compiled_ddp, tensor_parallel, pipelining, zero_bubble_pipelining,
        checkpoints_between_world_sizes,
    ]
}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--only", default="")
    parser.add_argument("--guide", action="store_true")
    given = parser.parse_args()
    import_before_fork()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HERD_TEST_FOLDER"] = folder
        sizes = [int(size) for size in given.ranks.split(",")]
        passed = run_checks(CHECKS, sizes, given.only, within=600.0)
    if given.guide:  # here, where the imports that they share are done
        passed &= guide.run_examples()
    sys.exit(0 if passed else 1)
