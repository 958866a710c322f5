"""Torch's own ways to train the GPT of gpt.h on several ranks, each with fused AdamW (RANK, WORLD_SIZE set).

    torch_peers.py ddp|zero|fsdp2|fsdp2_bf16|experts|deepspeed_bf16|deepspeed_nvme|bf16|eager LAYERS WIDTH VOCAB CONTEXT BATCH STEPS

ddp     DistributedDataParallel, gradients as bucket views
zero    the same with ZeroRedundancyOptimizer
fsdp2   fully_shard of each layer and the whole (fsdp2_bf16: weights gathered and used in bf16, gradients reduced in fp32)
deepspeed_bf16   DeepSpeed's ZeRO-3 over gloo: weights in bf16, masters and moments in fp32 (pip install deepspeed, and
        DS_ACCELERATOR=cpu)
deepspeed_nvme   the same in fp32, weights and the optimizer's states in files of the temporary folder (DeepSpeed
        compiles its file access and its update at their first use: apt-get install libaio-dev)
pp_gpipe, pp_1f1b, pp_interleaved, pp_zero_bubble_v   torch.distributed.pipelining on two ranks, MICRO_BATCHES (8) of
        BATCH; stages by hand: 9 layers, and 3 with the head; of two a rank 4, 4, 4, and the head
tp      tensor parallel by DTensor: columns then rows in each layer, the vocabulary's rows, the logits gathered
tp_sequence   the same with norms and sums on shards of the sequence, and the loss over the shards of the vocabulary
experts each layer's feed-forward is 8 gated experts of 2 x WIDTH, of which a token takes 2, the ranks having equal parts of
        them: rows sorted by expert and sent by all_to_all_single, one product an expert; the rest by DistributedDataParallel
cp      sequences that all ranks share, attention by torch's own ring templates (private) around its CPU kernel, balanced
        as by zigzag; the gradients summed by DistributedDataParallel
bf16, eager    one rank, weights in bf16 or fp32
CLIP=1 in the environment clips by the norm of all gradients; BACKEND=herd|fake takes another process group than gloo; fake is torch's own that moves nothing.
"""
import contextlib
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

KIND = sys.argv[1]
LAYERS, WIDTH, VOCAB, CONTEXT, BATCH, STEPS = map(int, sys.argv[2:8])
torch.set_num_threads(1)
torch.manual_seed(1)


class RingAttention(torch.autograd.Function):
    """Causal attention of the tokens of own_tokens() over those of all ranks, by torch's templates."""

    @staticmethod
    def forward(context, q, k, v):
        from torch.distributed.tensor.experimental._context_parallel._attention import _templated_ring_attention

        out, lse = _templated_ring_attention(
            dist.group.WORLD, 2, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, q, k, v, is_causal=True)
        context.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(context, gradient):
        from torch.distributed.tensor.experimental._context_parallel._attention import _templated_ring_attention_backward

        q, k, v, out, lse = context.saved_tensors
        return _templated_ring_attention_backward(
            dist.group.WORLD, 2, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward, gradient, "grad_out",
            q, k, v, out, lse, True, dropout_p=0.0)


def own_tokens():
    """The places of a sequence that this rank computes: two pieces, so that all ranks have as many products."""
    pieces = torch.arange(CONTEXT).chunk(2 * ranks)
    return torch.cat([pieces[rank], pieces[2 * ranks - 1 - rank]])


class Experts(nn.Module):
    """A gated feed-forward of 8 experts, of which a token takes 2. Each rank has an equal part of them."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 8, bias=False)
        self.gate, self.up, self.down = (nn.Parameter(torch.empty(8 // ranks, *shape).normal_(std=0.02))
                                         for shape in ((WIDTH, 2 * WIDTH), (WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH)))

    def forward(self, x):
        from torch.distributed._functional_collectives import all_to_all_single_autograd

        tokens = x.reshape(-1, WIDTH)
        weights, chosen = F.softmax(self.router(tokens), -1).topk(2)
        weights = (weights / weights.sum(-1, keepdim=True)).flatten()
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=8)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)  # by rank, then by expert of this one
        sent, come = counts.view(ranks, -1).sum(1).tolist(), theirs.view(ranks, -1).sum(1).tolist()
        rows = all_to_all_single_autograd(tokens[order // 2], come, sent, dist.group.WORLD)
        expert_of = torch.arange(8 // ranks).repeat(ranks).repeat_interleave(theirs)
        sorted_rows = expert_of.argsort(stable=True)
        parts = []
        for e, part in enumerate(rows[sorted_rows].split(expert_of.bincount(minlength=8 // ranks).tolist())):
            parts.append((F.silu(part @ self.gate[e]) * (part @ self.up[e])) @ self.down[e])
        outputs = torch.cat(parts)[sorted_rows.argsort()]
        back = all_to_all_single_autograd(outputs, sent, come, dist.group.WORLD)
        mixed = torch.zeros_like(tokens).index_add(0, order // 2, back * weights[order].unsqueeze(1))
        return mixed.view_as(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        if KIND == "experts":
            self.experts = Experts()
        else:
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = [p.view(BATCH, x.size(1), -1, 64).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, dim=-1)]
        y = RingAttention.apply(*heads) if KIND == "cp" else F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(BATCH, x.size(1), -1))
        if KIND == "experts":
            return x + self.experts(self.norm2(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        positions = self.positions.weight[own_tokens()] if KIND == "cp" else self.positions.weight
        x = self.tokens(ids) + (positions.to_local() if KIND == "tp_sequence" else positions)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Part(nn.Module):
    """The layers [begin, end) of a Gpt, with the embedding where they begin it and the head where nothing follows."""

    def __init__(self, gpt, begin, end, last):
        super().__init__()
        self.tokens, self.positions = (gpt.tokens, gpt.positions) if begin == 0 else (None, None)
        self.layers = gpt.layers[begin:end]
        self.norm, self.head = (gpt.norm, gpt.head) if last else (None, None)

    def forward(self, x):
        if self.tokens is not None:
            x = self.tokens(x) + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return x if self.head is None else self.head(self.norm(x))


def pipeline(gpt, order, rank, micro_batches):
    """A function that runs a step's passes and returns its losses, and the parameters of this rank."""
    from torch.distributed import pipelining

    cuts = {"gpipe": [0, 9, 12], "1f1b": [0, 9, 12]}.get(order, [0, 4, 8, 12, 12])
    stages = len(cuts) - 1
    mine = [rank] if stages == 2 else [rank, 3 - rank] if order == "zero_bubble_v" else [rank, 2 + rank]
    parts = [Part(gpt, cuts[s], cuts[s + 1], s == stages - 1) for s in mine]
    built = [pipelining.PipelineStage(part, s, stages, torch.device("cpu")) for part, s in zip(parts, mine)]
    schedule = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B,
                "interleaved": pipelining.ScheduleInterleaved1F1B,
                "zero_bubble_v": pipelining.ScheduleZBVZeroBubble}[order](
        built[0] if stages == 2 else built, micro_batches,
        loss_fn=lambda y, t: F.cross_entropy(y.view(-1, VOCAB).float(), t.reshape(-1)))

    def run():
        ids = (torch.arange(micro_batches * BATCH * (CONTEXT + 1)) * 7919 % VOCAB).view(micro_batches * BATCH, -1)
        losses = []
        arguments = [ids[:, :-1]] if 0 in mine else []
        if stages - 1 in mine:
            schedule.step(*arguments, target=ids[:, 1:].contiguous(), losses=losses)
        else:
            schedule.step(*arguments)
        return losses

    return run, [p for part in parts for p in part.parameters()]


ranks = int(os.environ.get("WORLD_SIZE", "1"))
rank = int(os.environ.get("RANK", "0"))
if ranks > 1:
    backend = os.environ.get("BACKEND", "gloo")  # herd; fake: torch's own that moves nothing
    if backend == "herd":
        import herd_torch  # noqa: F401
    elif backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group(backend, **({"store": FakeStore(), "rank": rank, "world_size": ranks} if backend == "fake" else {}))
gpt = Gpt()
model = gpt
loss_context = contextlib.nullcontext
parameters = list(gpt.parameters())
if KIND.startswith("pp_"):
    run_pipeline, parameters = pipeline(gpt, KIND[3:], rank, int(os.environ.get("MICRO_BATCHES", "8")))
elif KIND.startswith("tp"):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel,
                                                   parallelize_module)

    mesh = dist.init_device_mesh("cpu", (ranks,))
    sequence = KIND == "tp_sequence"
    between = Shard(1) if sequence else Replicate()
    norms = {"norm1": SequenceParallel(), "norm2": SequenceParallel()} if sequence else {}
    for layer in gpt.layers:
        columns, rows = ColwiseParallel(input_layouts=between), RowwiseParallel(output_layouts=between)
        parallelize_module(layer, mesh, {"qkv": columns, "projection": rows, "up": columns, "down": rows, **norms})
    parallelize_module(gpt, mesh, {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        **({"norm": SequenceParallel()} if sequence else {}),
        "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1) if sequence else Replicate(),
                                use_local_output=not sequence)})
    if sequence:
        gpt.positions.weight = nn.Parameter(distribute_tensor(gpt.positions.weight.data, mesh, [Shard(0)]))
        loss_context = loss_parallel
    parameters = list(gpt.parameters())
elif KIND == "bf16":
    gpt.to(torch.bfloat16)
elif KIND.startswith("deepspeed"):
    import deepspeed

    deepspeed.init_distributed("gloo")
elif KIND.startswith("fsdp2"):
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = {"mp_policy": precision} if KIND == "fsdp2_bf16" else {}
    mesh = dist.init_device_mesh("cpu", (ranks,))
    for layer in gpt.layers:
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(gpt, mesh=mesh, **options)
elif KIND != "eager" and not KIND.startswith("pp_"):
    own = [name for name, _ in gpt.named_parameters() if ".experts." in name and ".router." not in name]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(gpt, own)
    model = nn.parallel.DistributedDataParallel(gpt, gradient_as_bucket_view=True)
    if os.environ.get("BACKEND") == "fake":  # its futures hold nothing
        from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

        model.register_comm_hook(None, noop_hook)
settings = {"lr": 1e-3, "betas": (0.9, 0.95), "fused": True}
# The fused update takes no mixture of tensors and DTensors.
groups = [{"params": [p for p in parameters if (p.dim() == 2, type(p.data) is torch.Tensor) == (matrix, plain)],
           "weight_decay": 0.1 if matrix else 0.0} for matrix in (True, False) for plain in (True, False)]
groups = [group for group in groups if group["params"]]
if KIND == "zero":
    optimizer = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, **settings)
else:
    optimizer = torch.optim.AdamW(groups, **settings)
if KIND == "deepspeed_bf16":
    model, optimizer, _, _ = deepspeed.initialize(model=gpt, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": BATCH, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3},
        "zero_allow_untested_optimizer": True})
elif KIND == "deepspeed_nvme":
    files = {"device": "nvme", "nvme_path": f"{tempfile.gettempdir()}/deepspeed_nvme", "pin_memory": False}
    model, optimizer, _, _ = deepspeed.initialize(model=gpt, model_parameters=parameters, config={
        "train_micro_batch_size_per_gpu": BATCH, "gradient_clipping": float(os.environ.get("CLIP", "0")),
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "zero_optimization": {"stage": 3, "offload_optimizer": {**files, "pipeline_read": True, "pipeline_write": True},
                              "offload_param": {**files, "buffer_size": 2 * VOCAB * WIDTH, "buffer_count": 8}},
        "aio": {"block_size": 1 << 20, "queue_depth": 16, "single_submit": False, "overlap_events": True}})
tokens = (torch.arange(BATCH * (CONTEXT + 1)) * 7919 % VOCAB).view(BATCH, -1)
inputs, targets = tokens[:, :-1], tokens[:, 1:].reshape(-1)
if KIND == "cp":
    inputs, targets = tokens[:, own_tokens()], tokens[:, own_tokens() + 1].reshape(-1)
clip = float(os.environ.get("CLIP", "0"))
for _ in range(STEPS):
    if ranks > 1:
        dist.barrier()
    start = time.perf_counter()
    if KIND.startswith("pp_"):
        losses = run_pipeline()
        loss = torch.stack(losses).mean() if losses else torch.tensor(float("nan"))
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"ms {(time.perf_counter() - start) * 1e3:.2f} loss {loss.item():.5f}", flush=True)
        continue
    with loss_context():
        loss = F.cross_entropy(model(inputs).view(-1, VOCAB).float(), targets)
        if KIND.startswith("deepspeed"):
            model.backward(loss)
        else:
            loss.backward()
    if KIND.startswith("deepspeed"):
        model.step()
    else:
        if clip:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(f"ms {(time.perf_counter() - start) * 1e3:.2f} loss {loss.item():.5f}", flush=True)
if ranks > 1:
    dist.destroy_process_group()
