"""The losses that a run file gives in plain PyTorch: python pytorch_parity.py FOLDER

Reads FOLDER/config.toml (a resolved run file), names.txt and weights.bin (initial weights, as for
tests/models/parity_with_pytorch.py) and tokens.bin, int64 [steps, batch, context + 1]; writes FOLDER/losses.bin, float64.
"""
import math
import os
import sys
import tomllib

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
from parity_with_pytorch import Gpt  # noqa: E402


def rate(step, o, steps):
    """Linear warm-up, then half a cosine down to lr_min, which the last step has."""
    t = step + 1
    if t <= o["warmup_steps"]:
        return o["lr"] * t / o["warmup_steps"]
    share = (t - o["warmup_steps"]) / (steps - o["warmup_steps"])
    return o["lr_min"] + (o["lr"] - o["lr_min"]) * (1 + math.cos(math.pi * share)) / 2


torch.set_num_threads(1)
folder = sys.argv[1]
with open(f"{folder}/config.toml", "rb") as file:
    run = tomllib.load(file)
o, steps = run["optimizer"], run["train"]["steps"]
assert (o["kind"], o["schedule"]) == ("adamw", "cosine")
tokens = torch.from_numpy(numpy.fromfile(f"{folder}/tokens.bin", dtype=numpy.int64))
tokens = tokens.view(steps, run["train"]["batch"], run["model"]["context"] + 1)
gpt = Gpt(os.path.join(folder, ("tied_" if run["model"]["tie_embeddings"] else "untied_") + run["model"]["norm"]), folder)
decays = {n for n, w in gpt.weights.items() if w.dim() == 2 and n != "wpe.weight"}
optimizer = torch.optim.AdamW(
    [{"params": [w for n, w in gpt.weights.items() if n in decays], "weight_decay": o["weight_decay"]},
     {"params": [w for n, w in gpt.weights.items() if n not in decays], "weight_decay": 0.0}],
    betas=tuple(o["betas"]), eps=o["eps"])
losses = []
for step in range(steps):
    for group in optimizer.param_groups:
        group["lr"] = rate(step, o, steps)
    optimizer.zero_grad()
    loss = gpt.loss(tokens[step, :, :-1], tokens[step, :, 1:])
    loss.backward()
    losses.append(loss.item())
    torch.nn.utils.clip_grad_norm_(list(gpt.weights.values()), o["clip"])
    optimizer.step()
numpy.array(losses, dtype=numpy.float64).tofile(f"{folder}/losses.bin")
