#!/usr/bin/env python3
"""Plain PyTorch's way to train the Llama of one of herd's run files, on one device.

    llama_torch.py RUN.toml [--compile] [--masters fp32|none] [--device cuda|cpu] [--set model.layers=2 ...]

Reads [model], train.batch, train.micro_batch, train.steps, the optimizer and the precision; the same shapes, the same
number of micro-batches. A fair plain program: flash attention by scaled_dot_product_attention, F.rms_norm, fused AdamW,
clipping by foreach, no wait for the device within a step. Weights in bf16: with --masters fp32 (the default) gradients are
copied to fp32 ones, AdamW updates fp32 weights and its moments are fp32, which is herd's arithmetic; with none, weights,
moments and updates are bf16, which takes less time and loses small updates. --compile: torch.compile of the whole model.

Prints a line of JSON for each step: ms, loss and, at the end, the peak of memory in bytes.
"""
import argparse
import json
import math
import time
import tomllib

import torch
import torch.nn.functional as F
from torch import nn


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--masters", choices=("fp32", "none"), default="fp32")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", nargs="*", default=[], metavar="section.key=value")
    args = parser.parse_args()
    with open(args.run, "rb") as file:
        run = tomllib.load(file)
    for override in args.set:
        path, _, value = override.partition("=")
        section, _, key = path.partition(".")
        try:
            value = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            pass  # plain text, as herd's own command line takes it
        run.setdefault(section, {})[key] = value
    return args, run


def rotate(x_BHTD, cos_TD, sin_TD):
    half = x_BHTD.shape[-1] // 2
    turned = torch.cat((-x_BHTD[..., half:], x_BHTD[..., :half]), dim=-1)
    return x_BHTD * cos_TD + turned * sin_TD


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.head, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * ffn, bias=False), nn.Linear(ffn, width, bias=False)

    def forward(self, x_BTD, cos, sin):
        B, T, D = x_BTD.shape
        parts = self.qkv(self.norm1(x_BTD)).view(B, T, -1, self.head).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                           enable_gqa=self.heads != self.kv_heads)
        x_BTD = x_BTD + self.projection(y.transpose(1, 2).reshape(B, T, D))
        gate, up = self.gate_up(self.norm2(x_BTD)).chunk(2, dim=-1)
        return x_BTD + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, ffn, context, vocab, tie, theta):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads, ffn) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocab, bias=False)
        if tie:
            self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        size = width // heads
        angles = torch.outer(torch.arange(context).float(), theta ** (-torch.arange(0, size, 2).float() / size))
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids_BT, targets_BT):
        x_BTD = self.tokens(ids_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD, self.cos, self.sin)
        logits = self.head(self.norm(x_BTD))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets_BT.reshape(-1))


def main():
    args, run = parse()
    model_keys, train, optimizer_keys = run["model"], run["train"], run.get("optimizer", {})
    device = torch.device(args.device)
    bf16 = run.get("strategy", {}).get("precision", "fp32") == "bf16"
    torch.manual_seed(1)
    with device:
        width, heads, context = model_keys["width"], model_keys["heads"], model_keys["context"]
        model = Llama(model_keys["layers"], width, heads, model_keys.get("kv_heads", 0) or heads,
                      model_keys.get("ffn", 0) or 4 * width, context, model_keys["vocab"],
                      model_keys.get("tie_embeddings", True), model_keys.get("rope_theta", 10000.0))
    masters = None
    parameters = list(model.parameters())
    if bf16:
        if args.masters == "fp32":
            masters = [nn.Parameter(p.detach().clone()) for p in parameters]
        model.to(torch.bfloat16)
        parameters = list(model.parameters())
    updated = masters or parameters
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in updated if p.dim() == 2], "weight_decay": 0.1},
         {"params": [p for p in updated if p.dim() != 2], "weight_decay": 0.0}],
        lr=optimizer_keys.get("lr", 3e-4), betas=(0.9, 0.95), eps=1e-8, fused=True)
    forward = torch.compile(model) if args.compile else model
    micro_batch = train["micro_batch"]
    passes = math.ceil(train["batch"] / micro_batch)
    vocab = model_keys["vocab"]

    def synchronize():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for step in range(train["steps"]):
        ids = torch.randint(0, vocab, (passes, micro_batch, context + 1), device=device)
        synchronize()
        begun = time.perf_counter()
        total = torch.zeros((), device=device)
        for tokens in ids:
            loss = forward(tokens[:, :-1], tokens[:, 1:]) / passes
            loss.backward()
            total += loss.detach()
        if masters:
            if masters[0].grad is None:
                for master in masters:
                    master.grad = torch.empty_like(master)
            torch._foreach_copy_([m.grad for m in masters], [p.grad for p in parameters])
        nn.utils.clip_grad_norm_(updated, 1.0, foreach=True)
        optimizer.step()
        if masters:
            with torch.no_grad():
                torch._foreach_copy_(parameters, masters)
        for p in parameters:
            p.grad = None
        mean = total.item()  # the value that a loop prints: the one wait of a step
        synchronize()
        print(json.dumps({"step": step + 1, "ms": (time.perf_counter() - begun) * 1e3, "loss": mean}), flush=True)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    print(json.dumps({"parameters": sum(p.numel() for p in parameters), "peak_bytes": peak}), flush=True)


main()
