"""Torch DDP on the GPT of gpt.h, fused AdamW, gradients as bucket views (RANK, WORLD_SIZE set; one rank: no DDP).

    torch_ddp.py LAYERS WIDTH VOCAB CONTEXT BATCH STEPS
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, VOCAB, CONTEXT, BATCH, STEPS = map(int, sys.argv[1:7])
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
gpt = Gpt()
model = gpt
if ranks > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(gpt, gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW([{"params": [p for p in gpt.parameters() if p.dim() == 2], "weight_decay": 0.1},
                               {"params": [p for p in gpt.parameters() if p.dim() != 2], "weight_decay": 0.0}],
                              lr=1e-3, betas=(0.9, 0.95), fused=True)
tokens = (torch.arange(BATCH * (CONTEXT + 1)) * 7919 % VOCAB).view(BATCH, -1)
inputs, targets = tokens[:, :-1], tokens[:, 1:].reshape(-1)
for _ in range(STEPS):
    if ranks > 1:
        dist.barrier()
    start = time.perf_counter()
    loss = F.cross_entropy(model(inputs).view(-1, VOCAB), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"ms {(time.perf_counter() - start) * 1e3:.2f} loss {loss.item():.5f}", flush=True)
if ranks > 1:
    dist.destroy_process_group()
