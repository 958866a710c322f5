"""Llama, Qwen and their mixtures of experts, in plain PyTorch or by transformers, for comparison: python llama_parity.py BY FOLDER ...

BY is "torch" (this file's own reading of the papers) or "transformers". The script adds to a FOLDER the logits of its
batch, their loss and its gradients. Raw, little endian:
  model.json     layers, width, heads, kv_heads, head_width, ffn, vocab, tied, eps, rope (as transformers states it), qkv_bias,
                 qk_norm; of a mixture of experts also experts, top_k, expert_ffn, router, normalize, balance_loss, z_loss, shared,
                 shared_gate, dense_layers   (read)
  names.txt      one line per parameter: name, sizes            (read)
  tokens.bin     int64 [4, 25]: the batch, inputs and targets   (read)
  weights.bin    float32, parameters in the order of names.txt  (read)
  BY_logits.bin, BY_loss.bin (float64), BY_gradients.bin (the order of names.txt)   (written)
"""
import json
import math
import sys

import numpy
import torch
import torch.nn.functional as F


def frequencies(width, rope):
    plain = [rope["rope_theta"] ** (-2 * i / width) for i in range(width // 2)]
    if rope["rope_type"] == "default":
        return torch.tensor(plain)
    if rope["rope_type"] == "linear":
        return torch.tensor([f / rope["factor"] for f in plain])
    old, low, high = (rope[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    scaled = []
    for f in plain:
        wavelength = 2 * math.pi / f
        if wavelength < old / high:
            scaled.append(f)
        elif wavelength > old / low:
            scaled.append(f / rope["factor"])
        else:
            smooth = (old / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * f / rope["factor"] + smooth * f)
    return torch.tensor(scaled)


class Plain:
    def __init__(self, shape, weights):
        self.shape, self.weights = shape, {n: w.requires_grad_() for n, w in weights.items()}

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.shape["eps"]) * self.weights[name + ".weight"]

    def linear(self, x, name):
        return F.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def turned(self, x):  # (B, T, heads, d): element i and i + d/2 as one complex number
        half = x.shape[-1] // 2
        angles = torch.arange(x.shape[1])[:, None] * frequencies(x.shape[-1], self.shape["rope"])
        y = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.cat([y.real, y.imag], -1)

    def attention(self, x, h):
        heads, groups, width = (self.shape[k] for k in ("heads", "kv_heads", "head_width"))
        q, k, v = self.linear(x, h + "attn.qkv").split([heads * width, groups * width, groups * width], -1)
        q, k = q.view(*x.shape[:2], heads, width), k.view(*x.shape[:2], groups, width)
        if h + "attn.q_norm.weight" in self.weights:
            q, k = self.norm(q, h + "attn.q_norm"), self.norm(k, h + "attn.k_norm")
        q, k = self.turned(q), self.turned(k).repeat_interleave(heads // groups, 2)
        v = v.view(*x.shape[:2], groups, width).repeat_interleave(heads // groups, 2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width)
        scores = scores + torch.full(scores.shape[-2:], -math.inf).triu(1)
        y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        return self.linear(y.flatten(2), h + "attn.proj")

    def gated(self, x, name):
        return self.linear(F.silu(self.linear(x, name + ".gate")) * self.linear(x, name + ".up"), name + ".down")

    def mixture(self, x, h):  # every expert for every token, times its weight or zero
        shape = self.shape
        experts, k = shape["experts"], shape["top_k"]
        logits = self.linear(x, h + "router")
        scores = logits.softmax(-1) if shape["router"] == "softmax" else logits.sigmoid()
        chosen = F.one_hot(logits.topk(k, -1).indices, experts).sum(-2)
        weights = scores * chosen
        if shape["normalize"]:
            weights = weights / weights.sum(-1, keepdim=True)
        y = self.gated(x, h + "shared") if shape["shared"] else torch.zeros_like(x)
        if h + "shared_gate.weight" in self.weights:
            y = y * self.linear(x, h + "shared_gate").sigmoid()
        gate, up, down = (self.weights[f"{h}experts.{name}.weight"] for name in ("gate", "up", "down"))
        for e in range(experts):
            y = y + weights[..., e, None] * F.linear(F.silu(F.linear(x, gate[e])) * F.linear(x, up[e]), down[e])
        tokens = x.shape[1]  # of a sequence
        shares = chosen.sum(1) / (k * tokens)
        parts = (scores / scores.sum(-1, keepdim=True)).mean(1)
        balance = experts * (shares * parts).sum(-1).mean()
        self.losses = self.losses + shape["balance_loss"] * balance + shape["z_loss"] * logits.logsumexp(-1).square().mean()
        return y

    def logits(self, ids):
        self.losses = 0
        x = self.weights["wte.weight"][ids]
        for layer in range(self.shape["layers"]):
            h = f"h.{layer}."
            x = x + self.attention(self.norm(x, h + "ln_1"), h)
            n = self.norm(x, h + "ln_2")
            if h + "router.weight" in self.weights:
                x = x + self.mixture(n, h)
            else:
                x = x + self.gated(n, h + "mlp")
        return F.linear(self.norm(x, "ln_f"), self.weights["wte.weight" if self.shape["tied"] else "head.weight"])

    def gradient(self, name):
        return self.weights[name].grad


class ByTransformers:
    losses = 0

    def __init__(self, shape, weights):
        self.shape = shape
        sizes = dict(vocab_size=shape["vocab"], hidden_size=shape["width"], num_hidden_layers=shape["layers"],
                     num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
                     head_dim=shape["head_width"], rms_norm_eps=shape["eps"], tie_word_embeddings=shape["tied"],
                     rope_parameters=shape["rope"], max_position_embeddings=shape["context"])
        self.model = self.made(shape, sizes)
        self.model.eval()
        self.parameters = {name: self.theirs(name) for name in weights if ".experts." not in name}
        with torch.no_grad():
            for name, mine in weights.items():
                if ".experts." in name:
                    self.of_experts(name).copy_(mine)
                    continue
                for theirs, part in zip(self.parameters[name], mine.split([p.shape[0] for p in self.parameters[name]])):
                    theirs.copy_(part)

    @staticmethod
    def made(shape, sizes):
        import transformers
        from transformers import AutoConfig, AutoModelForCausalLM
        if "experts" not in shape:
            kind = "qwen2" if shape["qkv_bias"] else "qwen3" if shape["qk_norm"] else "llama"
            return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, intermediate_size=shape["ffn"]))
        mixture = dict(num_experts_per_tok=shape["top_k"])
        if not (shape["qk_norm"] or shape["shared"]):
            config = AutoConfig.for_model("mixtral", **sizes, **mixture, intermediate_size=shape["expert_ffn"],
                                          num_local_experts=shape["experts"])
            return AutoModelForCausalLM.from_config(config)
        mixture.update(intermediate_size=shape["ffn"], moe_intermediate_size=shape["expert_ffn"])
        if shape["qk_norm"] or shape["shared_gate"]:
            mixture.update(num_experts=shape["experts"], norm_topk_prob=shape["normalize"],
                           mlp_only_layers=list(range(shape["dense_layers"])))
            if shape["shared_gate"]:
                mixture.update(shared_expert_intermediate_size=shape["shared"] * shape["expert_ffn"], qkv_bias=shape["qkv_bias"])
            kind = "qwen3_moe" if shape["qk_norm"] else "qwen2_moe"
            return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **mixture))
        # The first DeepSeek-MoE is no model of transformers': Llama's attention, and mixtures as a later one has them.
        from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Config, DeepseekV2Moe
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, intermediate_size=shape["ffn"]))
        config = DeepseekV2Config(hidden_size=shape["width"], n_routed_experts=shape["experts"], n_shared_experts=shape["shared"],
                                  routed_scaling_factor=1.0, topk_method="greedy", **mixture)
        for layer in model.model.layers[shape["dense_layers"]:]:
            layer.mlp = DeepseekV2Moe(config)
        return model

    def of_experts(self, name, gradient=False):  # the part of one of their tensors, which hold all experts of a layer
        _, layer, _, which, _ = name.split(".")
        experts = self.model.model.layers[int(layer)].mlp.experts
        theirs = experts.down_proj if which == "down" else experts.gate_up_proj
        if gradient:
            theirs = theirs.grad
        return theirs if which == "down" else theirs.chunk(2, 1)[which == "up"]

    def theirs(self, name):
        names = {"wte": "model.embed_tokens", "ln_f": "model.norm", "head": "lm_head", "ln_1": "input_layernorm",
                 "ln_2": "post_attention_layernorm", "attn.proj": "self_attn.o_proj", "mlp.gate": "mlp.gate_proj",
                 "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj", "router": "mlp.gate",
                 "attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm", "shared_gate": "mlp.shared_expert_gate",
                 **{f"shared.{p}": f"mlp.shared_expert{'' if self.shape['shared_gate'] else 's'}.{p}_proj"
                    for p in ("gate", "up", "down") if "experts" in self.shape}}
        name, kind = name.rsplit(".", 1)
        prefix = ""
        if name.startswith("h."):
            _, layer, name = name.split(".", 2)
            prefix = f"model.layers.{layer}."
        parts = [f"self_attn.{p}_proj" for p in "qkv"] if name == "attn.qkv" else [names[name]]
        return [self.model.get_parameter(f"{prefix}{part}.{kind}") for part in parts]

    def logits(self, ids):
        return self.model(input_ids=ids).logits

    def gradient(self, name):
        if ".experts." in name:
            return self.of_experts(name, gradient=True)
        return torch.cat([p.grad for p in self.parameters[name]])


def compare(by, folder):
    shape = json.load(open(f"{folder}/model.json"))
    flat, weights, at = numpy.fromfile(f"{folder}/weights.bin", dtype=numpy.float32), {}, 0
    for name, *sizes in (line.split() for line in open(f"{folder}/names.txt")):
        sizes = [int(s) for s in sizes]
        count = int(numpy.prod(sizes))
        weights[name] = torch.from_numpy(flat[at:at + count].copy()).view(sizes)
        at += count
    assert at == len(flat), "weights.bin does not match names.txt"
    tokens = torch.from_numpy(numpy.fromfile(f"{folder}/tokens.bin", dtype=numpy.int64)).view(4, 25)
    model = (Plain if by == "torch" else ByTransformers)(shape, weights)
    logits = model.logits(tokens[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    (loss + model.losses).backward()
    logits.detach().numpy().tofile(f"{folder}/{by}_logits.bin")
    numpy.array([(loss + model.losses).item()], dtype=numpy.float64).tofile(f"{folder}/{by}_loss.bin")
    numpy.concatenate([model.gradient(n).numpy().ravel() for n in weights]).tofile(f"{folder}/{by}_gradients.bin")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for path in sys.argv[2:]:
        compare(sys.argv[1], path)
