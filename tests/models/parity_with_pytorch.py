"""A GPT in plain PyTorch, for comparison: python parity_with_pytorch.py OUT TIED NORM

OUT holds the initial weights before the call ("weights": see below); the script adds the gradients of the first step and
the losses of ten steps of AdamW with clipping. Each file is raw float32 or float64, little endian:
  OUT/names.txt      one line per parameter: name, sizes            (read)
  OUT/tokens.bin     int64 [6, 17]: the batch, inputs and targets    (read)
  OUT/weights.bin    float32, parameters in the order of names.txt   (read)
  OUT/gradients.bin  float32, the same order                         (written)
  OUT/losses.bin     float64 [10]                                    (written)
"""
import sys

import numpy
import torch
import torch.nn.functional as F

OUT, TIED, NORM = sys.argv[1], sys.argv[2] == "tied", sys.argv[3]
LAYERS, HEADS = 2, 4
torch.set_num_threads(1)

names = [line.split() for line in open(f"{OUT}/names.txt")]
flat = numpy.fromfile(f"{OUT}/weights.bin", dtype=numpy.float32)
weights, at = {}, 0
for name, *sizes in names:
    shape = [int(s) for s in sizes]
    count = int(numpy.prod(shape))
    weights[name] = torch.from_numpy(flat[at:at + count].copy()).view(shape).requires_grad_()
    at += count
assert at == len(flat), "weights.bin does not match names.txt"
tokens = torch.from_numpy(numpy.fromfile(f"{OUT}/tokens.bin", dtype=numpy.int64)).view(6, 17)
inputs, targets = tokens[:, :-1], tokens[:, 1:]


def norm(x, name):
    if NORM == "rmsnorm":
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weights[name + ".weight"]
    return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], 1e-5)


def linear(x, name):
    return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])


def block(x, h):
    batch, length, width = x.shape
    q, k, v = (p.view(batch, length, HEADS, -1).transpose(1, 2)
               for p in linear(norm(x, h + "ln_1"), h + "attn.qkv").split(width, dim=-1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + linear(y.transpose(1, 2).reshape(batch, length, width), h + "attn.proj")
    return x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.up"), approximate="tanh"), h + "mlp.down")


def loss():
    x = F.embedding(inputs, weights["wte.weight"]) + weights["wpe.weight"][:inputs.shape[1]]
    for layer in range(LAYERS):
        x = block(x, f"h.{layer}.")
    logits = F.linear(norm(x, "ln_f"), weights["wte.weight" if TIED else "head.weight"])
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


decays = [w for n, w in weights.items() if w.dim() == 2 and n != "wpe.weight"]
others = [w for n, w in weights.items() if not (w.dim() == 2 and n != "wpe.weight")]
optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                              lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
losses = []
for step in range(10):
    optimizer.zero_grad()
    value = loss()
    value.backward()
    losses.append(value.item())
    if step == 0:
        numpy.concatenate([w.grad.numpy().ravel() for w in weights.values()]).tofile(f"{OUT}/gradients.bin")
    torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
    optimizer.step()
numpy.array(losses, dtype=numpy.float64).tofile(f"{OUT}/losses.bin")
