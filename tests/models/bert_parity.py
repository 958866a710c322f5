"""BERT in plain PyTorch or by transformers, for comparison: python bert_parity.py BY FOLDER ...

BY is "torch" (this file's own reading of the paper) or "transformers". The script adds to a FOLDER the logits of its batch,
their loss and its gradients. Raw, little endian:
  model.json     layers, width, heads, ffn, context, vocab, tied, eps   (read)
  names.txt      one line per parameter: name, sizes            (read)
  tokens.bin     int64 [2, 4, 24]: inputs, and targets, which do not count where they are negative   (read)
  weights.bin    float32, parameters in the order of names.txt  (read)
  BY_logits.bin, BY_loss.bin (float64), BY_gradients.bin (the order of names.txt)   (written)
"""
import json
import math
import sys

import numpy
import torch
import torch.nn.functional as F


class Plain:
    def __init__(self, shape, weights):
        self.shape, self.weights = shape, {n: w.requires_grad_() for n, w in weights.items()}

    def norm(self, x, name):
        x = x - x.mean(-1, keepdim=True)
        x = x / torch.sqrt(x.square().mean(-1, keepdim=True) + self.shape["eps"])
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def attention(self, x, h):
        heads = self.shape["heads"]
        q, k, v = (part.unflatten(-1, (heads, -1)) for part in self.linear(x, h + "attn.qkv").chunk(3, -1))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        return self.linear(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2), h + "attn.proj")

    @staticmethod
    def gelu(x):
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))

    def logits(self, ids):
        x = self.weights["wte.weight"][ids] + self.weights["wpe.weight"][:ids.shape[1]] + self.weights["segments.weight"][0]
        x = self.norm(x, "ln_embedding")
        for layer in range(self.shape["layers"]):
            h = f"h.{layer}."
            x = self.norm(x + self.attention(x, h), h + "ln_1")
            x = self.norm(x + self.linear(self.gelu(self.linear(x, h + "mlp.up")), h + "mlp.down"), h + "ln_2")
        x = self.norm(self.gelu(self.linear(x, "masked.dense")), "masked.ln")
        return x @ self.weights["wte.weight" if self.shape["tied"] else "masked.weight"].T + self.weights["masked.bias"]

    def gradient(self, name):
        return self.weights[name].grad


class ByTransformers:
    def __init__(self, shape, weights):
        from transformers import BertConfig, BertForMaskedLM
        self.model = BertForMaskedLM(BertConfig(
            vocab_size=shape["vocab"], hidden_size=shape["width"], num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"], intermediate_size=shape["ffn"], max_position_embeddings=shape["context"],
            layer_norm_eps=shape["eps"], tie_word_embeddings=shape["tied"], hidden_dropout_prob=0,
            attention_probs_dropout_prob=0, pad_token_id=None))
        self.model.eval()
        self.parameters = {name: self.theirs(name) for name in weights}
        with torch.no_grad():
            for name, mine in weights.items():
                for theirs, part in zip(self.parameters[name], mine.split([p.shape[0] for p in self.parameters[name]])):
                    theirs.copy_(part)

    def theirs(self, name):
        embeddings, head = "bert.embeddings.", "cls.predictions."
        whole = {"wte.weight": embeddings + "word_embeddings.weight", "wpe.weight": embeddings + "position_embeddings.weight",
                 "segments.weight": embeddings + "token_type_embeddings.weight", "masked.weight": head + "decoder.weight",
                 "masked.bias": head + "decoder.bias"}
        if name in whole:
            return [self.model.get_parameter(whole[name])]
        name, kind = name.rsplit(".", 1)
        layer = ""
        if name.startswith("h."):
            _, number, name = name.split(".", 2)
            layer = f"bert.encoder.layer.{number}."
        names = {"ln_embedding": [embeddings + "LayerNorm"], "masked.dense": [head + "transform.dense"],
                 "masked.ln": [head + "transform.LayerNorm"], "ln_1": ["attention.output.LayerNorm"], "ln_2": ["output.LayerNorm"],
                 "attn.qkv": [f"attention.self.{p}" for p in ("query", "key", "value")], "attn.proj": ["attention.output.dense"],
                 "mlp.up": ["intermediate.dense"], "mlp.down": ["output.dense"]}
        return [self.model.get_parameter(f"{layer}{part}.{kind}") for part in names[name]]

    def logits(self, ids):
        return self.model(input_ids=ids).logits

    def gradient(self, name):
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
    inputs, targets = torch.from_numpy(numpy.fromfile(f"{folder}/tokens.bin", dtype=numpy.int64)).view(2, 4, 24)
    model = (Plain if by == "torch" else ByTransformers)(shape, weights)
    logits = model.logits(inputs)
    loss = F.cross_entropy(logits[targets >= 0], targets[targets >= 0])
    loss.backward()
    logits.detach().numpy().tofile(f"{folder}/{by}_logits.bin")
    numpy.array([loss.item()], dtype=numpy.float64).tofile(f"{folder}/{by}_loss.bin")
    numpy.concatenate([model.gradient(n).numpy().ravel() for n in weights]).tofile(f"{folder}/{by}_gradients.bin")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for path in sys.argv[2:]:
        compare(sys.argv[1], path)
