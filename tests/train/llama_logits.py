"""Llama or Mixtral in Hugging Face's format, in plain PyTorch or by transformers.

  python llama_logits.py make BY FOLDER TIED DTYPE [mixtral]   writes a folder with random weights, in several files with
                                                     an index
  python llama_logits.py logits BY FOLDER            reads FOLDER and ids.bin in it (int64, rows of 11), writes logits.bin
                                                     (fp32) and greedy.txt: the first row and 12 more tokens
  python llama_logits.py encode sentencepiece FOLDER  reads text.txt there with tokenizer.model, writes the ids of LlamaTokenizer
                                                     (the begin of text, then the text as a whole) to ids.txt
  python llama_logits.py serve                       each of these, as lines of the input; answers with a line, done or failed

BY is "torch" (this file's own reading of the format, with the model of tests/models/llama_parity.py) or "transformers".
"""
import glob
import json
import os
import sys

import numpy
import torch

from gpt2_logits import LENGTH, read_safetensors, serve, write_safetensors

sys.path.append(os.path.dirname(os.path.abspath(__file__)) + "/../models")
from llama_parity import Plain

ROPE = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
SHAPE = dict(vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=12, max_position_embeddings=32, rms_norm_eps=1e-6)
MIXTURE = dict(num_local_experts=5, num_experts_per_tok=2)
NAMES = {"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.proj",
         "mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down",
         "block_sparse_moe.gate": "router"}


def feed_forward_shapes(width, ffn, kind):
    if kind == "llama":
        return {"mlp.gate_proj": (ffn, width), "mlp.up_proj": (ffn, width), "mlp.down_proj": (width, ffn)}
    shapes = {"gate": (MIXTURE["num_local_experts"], width)}
    for e in range(MIXTURE["num_local_experts"]):
        shapes.update({f"experts.{e}.w1": (ffn, width), f"experts.{e}.w2": (width, ffn), f"experts.{e}.w3": (ffn, width)})
    return {f"block_sparse_moe.{name}": shape for name, shape in shapes.items()}


def make_plain(folder, tied, kind):
    width, ffn, head = SHAPE["hidden_size"], SHAPE["intermediate_size"], SHAPE["head_dim"]
    q, kv = SHAPE["num_attention_heads"] * head, SHAPE["num_key_value_heads"] * head
    shapes = {"model.embed_tokens": (SHAPE["vocab_size"], width), "model.norm": (width,)}
    if not tied:
        shapes["lm_head"] = (SHAPE["vocab_size"], width)
    for layer in range(SHAPE["num_hidden_layers"]):
        for name, shape in {"input_layernorm": (width,), "post_attention_layernorm": (width,),
                            "self_attn.q_proj": (q, width), "self_attn.k_proj": (kv, width),
                            "self_attn.v_proj": (kv, width), "self_attn.o_proj": (width, q),
                            **feed_forward_shapes(width, ffn, kind)}.items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    weights = {name + ".weight": torch.randn(shape) * 0.2 for name, shape in shapes.items()}
    names, place = sorted(weights), {}
    for number, part in enumerate((names[:7], names[7:]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        write_safetensors(f"{folder}/{file}", {name: weights[name] for name in part})
        place.update({name: file for name in part})
    json.dump({"weight_map": place}, open(f"{folder}/model.safetensors.index.json", "w"))
    config = dict(SHAPE, model_type=kind, hidden_act="silu", tie_word_embeddings=tied, rope_theta=50.0, rope_scaling=ROPE)
    if kind == "mixtral":
        config.update(MIXTURE)
    json.dump(config, open(f"{folder}/config.json", "w"))


def read_plain(folder):
    config = json.load(open(f"{folder}/config.json"))
    assert config["model_type"] in ("llama", "mixtral") and config["hidden_act"] == "silu"
    rope = config.get("rope_parameters") or dict(config["rope_scaling"] or {"rope_type": "default"}, rope_theta=config["rope_theta"])
    theirs = {}
    for path in glob.glob(f"{folder}/*.safetensors"):
        theirs.update(read_safetensors(path))
    weights = {"wte.weight": theirs["model.embed_tokens.weight"], "ln_f.weight": theirs["model.norm.weight"]}
    if not config["tie_word_embeddings"]:
        weights["head.weight"] = theirs["lm_head.weight"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, mine in NAMES.items():
            if f"{prefix}{name}.weight" in theirs:
                weights[f"h.{layer}.{mine}.weight"] = theirs[f"{prefix}{name}.weight"]
        for name, mine in {"w1": "gate", "w2": "down", "w3": "up"}.items() if config["model_type"] == "mixtral" else ():
            weights[f"h.{layer}.experts.{mine}.weight"] = torch.stack(
                [theirs[f"{prefix}block_sparse_moe.experts.{e}.{name}.weight"] for e in range(config["num_local_experts"])])
        weights[f"h.{layer}.attn.qkv.weight"] = torch.cat([theirs[f"{prefix}self_attn.{p}_proj.weight"] for p in "qkv"])
    mixture = {}
    if config["model_type"] == "mixtral":
        mixture = dict(experts=config["num_local_experts"], top_k=config["num_experts_per_tok"], router="softmax",
                       normalize=True, shared=0, balance_loss=0, z_loss=0)
    return Plain(dict(mixture, layers=config["num_hidden_layers"], heads=config["num_attention_heads"],
                      kv_heads=config["num_key_value_heads"], head_width=config["head_dim"], eps=config["rms_norm_eps"],
                      tied=config["tie_word_embeddings"], rope=rope), weights).logits


def read_by_transformers(folder):
    from transformers import AutoModelForCausalLM
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not (info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]), info
    return lambda ids: model.eval()(ids).logits


def main(action, by, folder, tied="true", dtype="float32", kind="llama"):
    torch.set_num_threads(1)
    torch.manual_seed(5)
    if action == "encode":
        import sentencepiece
        model = sentencepiece.SentencePieceProcessor(f"{folder}/tokenizer.model")
        ids = model.encode(open(f"{folder}/text.txt", newline="").read(), add_bos=True)
        open(f"{folder}/ids.txt", "w").write(" ".join(map(str, ids)))
    elif action == "make" and by == "torch":
        make_plain(folder, tied == "true", kind)
    elif action == "make":
        from transformers import AutoConfig, AutoModelForCausalLM
        config = AutoConfig.for_model(kind, **SHAPE, tie_word_embeddings=tied == "true", initializer_range=0.2,
                                      rope_parameters=dict(ROPE, rope_theta=50.0),
                                      **(MIXTURE if kind == "mixtral" else {}))
        AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="30KB")
    else:
        logits_of = read_plain(folder) if by == "torch" else read_by_transformers(folder)
        ids = torch.from_numpy(numpy.fromfile(f"{folder}/ids.bin", dtype=numpy.int64)).view(-1, LENGTH)
        with torch.no_grad():
            logits_of(ids).float().numpy().tofile(f"{folder}/logits.bin")
            text = ids[:1]
            for _ in range(12):
                text = torch.cat([text, logits_of(text)[:, -1:].argmax(-1)], -1)
        open(f"{folder}/greedy.txt", "w").write(" ".join(map(str, text[0].tolist())) + "\n")


if __name__ == "__main__":
    serve(main) if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
