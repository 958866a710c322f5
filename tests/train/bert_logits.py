"""BERT in Hugging Face's format, in plain PyTorch or by transformers.

  python bert_logits.py make BY FOLDER TIED [CLASS]  writes a folder with random weights; CLASS is BertForMaskedLM or
                                                     BertForPreTraining. By torch, with the names of older files
  python bert_logits.py logits BY FOLDER             reads FOLDER and ids.bin in it (int64, rows of 11), writes logits.bin (fp32)
  python bert_logits.py serve                        each of these, as lines of the input; answers with a line, done or failed

BY is "torch" (this file's own reading of the format, with the model of tests/models/bert_parity.py) or "transformers".
"""
import json
import os
import re
import sys

import numpy
import torch

from gpt2_logits import LENGTH, read_safetensors, serve, write_safetensors

sys.path.append(os.path.dirname(os.path.abspath(__file__)) + "/../models")
from bert_parity import Plain

SHAPE = dict(vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
             max_position_embeddings=32, layer_norm_eps=1e-6)
NAMES = {"bert.embeddings.word_embeddings": "wte", "bert.embeddings.position_embeddings": "wpe",
         "bert.embeddings.token_type_embeddings": "segments", "bert.embeddings.LayerNorm": "ln_embedding",
         "attention.output.dense": "attn.proj", "attention.output.LayerNorm": "ln_1", "intermediate.dense": "mlp.up",
         "output.dense": "mlp.down", "output.LayerNorm": "ln_2", "cls.predictions.transform.dense": "masked.dense",
         "cls.predictions.transform.LayerNorm": "masked.ln", "cls.predictions": "masked", "cls.predictions.decoder": "masked"}


def old_weights(tied):
    width, ffn, vocab = SHAPE["hidden_size"], SHAPE["intermediate_size"], SHAPE["vocab_size"]
    shapes = {"bert.embeddings.word_embeddings.weight": (vocab, width), "cls.predictions.bias": (vocab,),
              "bert.embeddings.position_embeddings.weight": (SHAPE["max_position_embeddings"], width),
              "bert.embeddings.token_type_embeddings.weight": (2, width)}
    if not tied:
        shapes["cls.predictions.decoder.weight"] = (vocab, width)
    norms = ["bert.embeddings.LayerNorm", "cls.predictions.transform.LayerNorm"]
    linear = {"cls.predictions.transform.dense": (width, width), "bert.pooler.dense": (width, width),
              "cls.seq_relationship": (2, width)}
    for layer in range(SHAPE["num_hidden_layers"]):
        h = f"bert.encoder.layer.{layer}."
        norms += [h + "attention.output.LayerNorm", h + "output.LayerNorm"]
        linear.update({h + f"attention.self.{part}": (width, width) for part in ("query", "key", "value")})
        linear.update({h + "attention.output.dense": (width, width), h + "intermediate.dense": (ffn, width),
                       h + "output.dense": (width, ffn)})
    for name, shape in linear.items():
        shapes.update({name + ".weight": shape, name + ".bias": shape[:1]})
    for name in norms:
        shapes.update({name + ".gamma": (width,), name + ".beta": (width,)})
    return {name: torch.randn(shape) * 0.2 for name, shape in shapes.items()}


def names_of_plain(tensors):
    weights = {}
    for name, tensor in tensors.items():
        module, kind = name.rsplit(".", 1)
        kind = {"gamma": "weight", "beta": "bias"}.get(kind, kind)
        inside = re.fullmatch(r"bert\.encoder\.layer\.(\d+)\.(.*)", module)
        layer, module = (f"h.{inside[1]}.", inside[2]) if inside else ("", module)
        weights[f"{layer}{NAMES.get(module, module)}.{kind}"] = tensor
    for layer in range(sum(name.endswith("mlp.up.weight") for name in weights)):
        for kind in ("weight", "bias"):
            parts = [weights[f"h.{layer}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            weights[f"h.{layer}.attn.qkv.{kind}"] = torch.cat(parts)
    return weights


def plain_logits(folder, ids):
    config = json.load(open(f"{folder}/config.json"))
    assert config["model_type"] == "bert" and config["hidden_act"] == "gelu"
    shape = dict(layers=config["num_hidden_layers"], heads=config["num_attention_heads"], eps=config["layer_norm_eps"],
                 tied=config["tie_word_embeddings"])
    return Plain(shape, names_of_plain(read_safetensors(f"{folder}/model.safetensors"))).logits(ids).detach()


def main(action, by, folder, tied="true", kind="BertForMaskedLM"):
    torch.set_num_threads(1)
    torch.manual_seed(5)
    if by == "transformers":
        import transformers
    if action == "make" and by == "torch":
        write_safetensors(f"{folder}/model.safetensors", old_weights(tied == "true"))
        config = dict(SHAPE, model_type="bert", architectures=[kind], hidden_act="gelu", type_vocab_size=2,
                      tie_word_embeddings=tied == "true")
        json.dump(config, open(f"{folder}/config.json", "w"))
    elif action == "make":
        model = getattr(transformers, kind)(transformers.BertConfig(
            **SHAPE, tie_word_embeddings=tied == "true", initializer_range=0.2))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:  # which begin as ones and zeros
                    parameter.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(folder)
    else:
        ids = torch.from_numpy(numpy.fromfile(f"{folder}/ids.bin", dtype=numpy.int64)).view(-1, LENGTH)
        with torch.no_grad():
            if by == "torch":
                logits = plain_logits(folder, ids)
            else:
                kind = json.load(open(f"{folder}/config.json"))["architectures"][0]
                model, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
                assert not (info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]), info
                output = model.eval()(ids)
                logits = output.logits if kind == "BertForMaskedLM" else output.prediction_logits
        logits.float().numpy().tofile(f"{folder}/logits.bin")


if __name__ == "__main__":
    serve(main) if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
