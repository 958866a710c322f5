"""Torch eager on the GPT of compare.py: one step per line of input, per line of output its milliseconds, those of the
update, processor milliseconds, loss.

python eager.py LAYERS WIDTH VOCAB CONTEXT BATCH
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, VOCAB, CONTEXT, BATCH = map(int, sys.argv[1:6])
torch.set_num_threads(1)
torch.manual_seed(1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = [p.view(BATCH, CONTEXT, -1, 64).transpose(1, 2) for p in self.qkv(self.ln_1(x)).split(WIDTH, dim=-1)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(self.ln_f(x))


model = Gpt()
decays = [p for p in model.parameters() if p.dim() == 2]
others = [p for p in model.parameters() if p.dim() != 2]
optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                              lr=1e-3, betas=(0.9, 0.95), fused=True)
tokens = (torch.arange(BATCH * (CONTEXT + 1)) * 7919 % VOCAB).view(BATCH, -1)
inputs, targets = tokens[:, :-1], tokens[:, 1:]
print("ready", sum(p.numel() for p in model.parameters()), flush=True)
for _ in sys.stdin:
    processor_start, start = time.process_time(), time.perf_counter()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs).view(-1, VOCAB), targets.reshape(-1))
    loss.backward()
    between = time.perf_counter()
    optimizer.step()
    end = time.perf_counter()
    print(1e3 * (end - start), 1e3 * (end - between), 1e3 * (time.process_time() - processor_start), loss.item(), flush=True)
