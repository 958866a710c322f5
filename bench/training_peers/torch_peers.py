"""Torch's own ways to train the GPT of gpt.h on several ranks, each with fused AdamW (RANK, WORLD_SIZE set).

    torch_peers.py ddp|zero|fsdp2|fsdp2_bf16|deepspeed_bf16|bf16|eager LAYERS WIDTH VOCAB CONTEXT BATCH STEPS

ddp     DistributedDataParallel, gradients as bucket views
zero    the same with ZeroRedundancyOptimizer
fsdp2   fully_shard of each layer and the whole (fsdp2_bf16: weights gathered and used in bf16, gradients reduced in fp32)
deepspeed_bf16   DeepSpeed's ZeRO-3 over gloo: weights in bf16, masters and moments in fp32 (pip install deepspeed, and
        DS_ACCELERATOR=cpu)
bf16, eager    one rank, weights in bf16 or fp32
"""
import os
import sys
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


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = [p.view(BATCH, CONTEXT, -1, 64).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, dim=-1)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))
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
        x = self.tokens(ids) + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


ranks = int(os.environ.get("WORLD_SIZE", "1"))
rank = int(os.environ.get("RANK", "0"))
if ranks > 1:
    dist.init_process_group("gloo")
gpt = Gpt()
model = gpt
if KIND == "bf16":
    gpt.to(torch.bfloat16)
elif KIND == "deepspeed_bf16":
    import deepspeed

    deepspeed.init_distributed("gloo")
elif KIND.startswith("fsdp2"):
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = {"mp_policy": precision} if KIND == "fsdp2_bf16" else {}
    mesh = dist.init_device_mesh("cpu", (ranks,))
    for layer in gpt.layers:
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(gpt, mesh=mesh, **options)
elif KIND != "eager":
    model = nn.parallel.DistributedDataParallel(gpt, gradient_as_bucket_view=True)
settings = {"lr": 1e-3, "betas": (0.9, 0.95), "fused": True}
groups = [{"params": [p for p in gpt.parameters() if p.dim() == 2], "weight_decay": 0.1},
          {"params": [p for p in gpt.parameters() if p.dim() != 2], "weight_decay": 0.0}]
if KIND == "zero":
    optimizer = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, **settings)
else:
    optimizer = torch.optim.AdamW(groups, **settings)
if KIND == "deepspeed_bf16":
    model, optimizer, _, _ = deepspeed.initialize(model=gpt, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": BATCH, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3},
        "zero_allow_untested_optimizer": True})
tokens = (torch.arange(BATCH * (CONTEXT + 1)) * 7919 % VOCAB).view(BATCH, -1)
inputs, targets = tokens[:, :-1], tokens[:, 1:].reshape(-1)
for _ in range(STEPS):
    if ranks > 1:
        dist.barrier()
    start = time.perf_counter()
    loss = F.cross_entropy(model(inputs).view(-1, VOCAB).float(), targets)
    if KIND == "deepspeed_bf16":
        model.backward(loss)
        model.step()
    else:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(f"ms {(time.perf_counter() - start) * 1e3:.2f} loss {loss.item():.5f}", flush=True)
if ranks > 1:
    dist.destroy_process_group()
