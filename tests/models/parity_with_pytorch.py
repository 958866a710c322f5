"""A GPT in plain PyTorch, for comparison: python parity_with_pytorch.py FOLDER ...

A FOLDER is named tied_ or untied_ and layernorm or rmsnorm. It holds initial weights and a batch; the script adds the
gradients of the first step and the losses of ten steps of AdamW with clipping. Raw, little endian:
  names.txt      one line per parameter: name, sizes            (read)
  tokens.bin     int64 [6, 17]: the batch, inputs and targets   (read)
  weights.bin    float32, parameters in the order of names.txt  (read)
  gradients.bin  float32, the same order                        (written)
  losses.bin     float64 [10]                                   (written)
"""
import os
import sys

import numpy
import torch
import torch.nn.functional as F

LAYERS, HEADS = 2, 4


class Gpt:
    def __init__(self, kind, folder):
        tied, self.norm_kind = os.path.basename(kind).split("_")
        self.tied = tied == "tied"
        flat = numpy.fromfile(f"{folder}/weights.bin", dtype=numpy.float32)
        self.weights, at = {}, 0
        for name, *sizes in (line.split() for line in open(f"{folder}/names.txt")):
            shape = [int(s) for s in sizes]
            count = int(numpy.prod(shape))
            self.weights[name] = torch.from_numpy(flat[at:at + count].copy()).view(shape).requires_grad_()
            at += count
        assert at == len(flat), "weights.bin does not match names.txt"

    def norm(self, x, name):
        weight = self.weights[name + ".weight"]
        if self.norm_kind == "rmsnorm":
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight
        return F.layer_norm(x, x.shape[-1:], weight, self.weights[name + ".bias"], 1e-5)

    def linear(self, x, name):
        return F.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def block(self, x, h):
        batch, length, width = x.shape
        q, k, v = (p.view(batch, length, HEADS, -1).transpose(1, 2)
                   for p in self.linear(self.norm(x, h + "ln_1"), h + "attn.qkv").split(width, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.linear(y.transpose(1, 2).reshape(batch, length, width), h + "attn.proj")
        up = F.gelu(self.linear(self.norm(x, h + "ln_2"), h + "mlp.up"), approximate="tanh")
        return x + self.linear(up, h + "mlp.down")

    def loss(self, inputs, targets):
        x = F.embedding(inputs, self.weights["wte.weight"]) + self.weights["wpe.weight"][:inputs.shape[1]]
        for layer in range(LAYERS):
            x = self.block(x, f"h.{layer}.")
        logits = F.linear(self.norm(x, "ln_f"), self.weights["wte.weight" if self.tied else "head.weight"])
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def train(folder):
    gpt = Gpt(folder, folder)
    tokens = torch.from_numpy(numpy.fromfile(f"{folder}/tokens.bin", dtype=numpy.int64)).view(6, 17)
    decays = [w for n, w in gpt.weights.items() if w.dim() == 2 and n != "wpe.weight"]
    others = [w for n, w in gpt.weights.items() if not (w.dim() == 2 and n != "wpe.weight")]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(10):
        optimizer.zero_grad()
        loss = gpt.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = numpy.concatenate([w.grad.numpy().ravel() for w in gpt.weights.values()])
            gradients.tofile(f"{folder}/gradients.bin")
        torch.nn.utils.clip_grad_norm_(list(gpt.weights.values()), 1.0)
        optimizer.step()
    numpy.array(losses, dtype=numpy.float64).tofile(f"{folder}/losses.bin")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for path in sys.argv[1:]:
        train(path)
