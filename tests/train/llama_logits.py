"""Llama, Qwen and their mixtures of experts in Hugging Face's format, in plain PyTorch or by transformers.

  python llama_logits.py make BY FOLDER TIED DTYPE [KIND]   writes a folder with random weights, in several files with an index;
                                                     KIND is the model_type: llama, mixtral, qwen2, ..
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
QWEN_MOE = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20)
OF_KIND = {"llama": {}, "qwen2": {}, "qwen3": {},
           "mixtral": dict(num_local_experts=5, num_experts_per_tok=2),
           "qwen2_moe": dict(QWEN_MOE, norm_topk_prob=False, shared_expert_intermediate_size=40),
           "qwen3_moe": dict(QWEN_MOE, norm_topk_prob=True, mlp_only_layers=[0]),
           "deepseek": dict(n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=2,
                            first_k_dense_replace=1, moe_layer_freq=1, scoring_func="softmax", norm_topk_prob=False)}
NAMES = {"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.proj",
         "self_attn.q_norm": "attn.q_norm", "self_attn.k_norm": "attn.k_norm",
         "mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down",
         "block_sparse_moe.gate": "router", "mlp.gate": "router", "mlp.shared_expert_gate": "shared_gate"}


def mixture_of(config):  # of a layer: number of experts, the prefix, an expert's names for gate, down and up; and of shared ones
    experts = next((config[key] for key in ("num_local_experts", "num_experts", "n_routed_experts") if config.get(key)), 0)
    names = ("w1", "w2", "w3") if config["model_type"] == "mixtral" else ("gate_proj", "down_proj", "up_proj")
    shared = {"qwen2_moe": "mlp.shared_expert.", "deepseek": "mlp.shared_experts."}.get(config["model_type"])
    return experts, "block_sparse_moe." if config["model_type"] == "mixtral" else "mlp.", names, shared


def feed_forward_shapes(config, layer):
    width, kind = config["hidden_size"], config["model_type"]
    experts, mixture, names, shared = mixture_of(config)
    dense = layer in config.get("mlp_only_layers", []) or layer < config.get("first_k_dense_replace", 0)

    def network(prefix, names, ffn):
        return {prefix + name: (width, ffn) if at == 1 else (ffn, width) for at, name in enumerate(names)}

    if not experts or dense:
        return network("mlp.", ("gate_proj", "down_proj", "up_proj"), config["intermediate_size"])
    ffn = config.get("moe_intermediate_size", config["intermediate_size"])
    shapes = {mixture + "gate": (experts, width)}
    for e in range(experts):
        shapes.update(network(f"{mixture}experts.{e}.", names, ffn))
    if shared:
        shapes.update(network(shared, names, 2 * ffn))
    if kind == "qwen2_moe":
        shapes["mlp.shared_expert_gate"] = (1, width)
    return shapes


def make_plain(folder, tied, kind):
    config = dict(SHAPE, **OF_KIND[kind], model_type=kind, hidden_act="silu", tie_word_embeddings=tied, rope_theta=50.0,
                  rope_scaling=ROPE)
    width, head = SHAPE["hidden_size"], SHAPE["head_dim"]
    q, kv = SHAPE["num_attention_heads"] * head, SHAPE["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": (SHAPE["vocab_size"], width), "model.norm.weight": (width,)}
    if not tied:
        shapes["lm_head.weight"] = (SHAPE["vocab_size"], width)
    for layer in range(SHAPE["num_hidden_layers"]):
        norms = {f"self_attn.{p}_norm": (head,) for p in "qk"} if kind.startswith("qwen3") else {}
        for name, shape in {"input_layernorm": (width,), "post_attention_layernorm": (width,), **norms,
                            "self_attn.q_proj": (q, width), "self_attn.k_proj": (kv, width),
                            "self_attn.v_proj": (kv, width), "self_attn.o_proj": (width, q),
                            **feed_forward_shapes(config, layer)}.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
        if kind.startswith("qwen2"):
            shapes.update({f"model.layers.{layer}.self_attn.{p}_proj.bias": (q if p == "q" else kv,) for p in "qkv"})
    weights = {name: torch.randn(shape) * 0.2 for name, shape in shapes.items()}
    names, place = sorted(weights), {}
    for number, part in enumerate((names[:7], names[7:]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        write_safetensors(f"{folder}/{file}", {name: weights[name] for name in part})
        place.update({name: file for name in part})
    json.dump({"weight_map": place}, open(f"{folder}/model.safetensors.index.json", "w"))
    json.dump(config, open(f"{folder}/config.json", "w"))


def read_plain(folder):
    config = json.load(open(f"{folder}/config.json"))
    assert config["model_type"] in OF_KIND and config["hidden_act"] == "silu"
    rope = config.get("rope_parameters") or dict(config["rope_scaling"] or {"rope_type": "default"}, rope_theta=config["rope_theta"])
    theirs = {}
    for path in glob.glob(f"{folder}/*.safetensors"):
        theirs.update(read_safetensors(path))
    weights = {"wte.weight": theirs["model.embed_tokens.weight"], "ln_f.weight": theirs["model.norm.weight"]}
    if not config["tie_word_embeddings"]:
        weights["head.weight"] = theirs["lm_head.weight"]
    experts, mixture, names, shared = mixture_of(config)
    for layer in range(config["num_hidden_layers"]):
        prefix, mine = f"model.layers.{layer}.", f"h.{layer}."
        for name, own in NAMES.items():
            if f"{prefix}{name}.weight" in theirs:
                weights[f"{mine}{own}.weight"] = theirs[f"{prefix}{name}.weight"]
        for kind in ("weight", "bias"):
            if f"{prefix}self_attn.q_proj.{kind}" in theirs:
                weights[f"{mine}attn.qkv.{kind}"] = torch.cat([theirs[f"{prefix}self_attn.{p}_proj.{kind}"] for p in "qkv"])
        if f"{mine}router.weight" not in weights:
            continue
        for name, own in zip(names, ("gate", "down", "up")):
            weights[f"{mine}experts.{own}.weight"] = torch.stack(
                [theirs[f"{prefix}{mixture}experts.{e}.{name}.weight"] for e in range(experts)])
            if shared:
                weights[f"{mine}shared.{own}.weight"] = theirs[f"{prefix}{shared}{name}.weight"]
    of_experts = {}
    if experts:
        of_experts = dict(experts=experts, top_k=config["num_experts_per_tok"], router="softmax",
                          normalize=config.get("norm_topk_prob", True), shared=shared, balance_loss=0, z_loss=0)
    return Plain(dict(of_experts, layers=config["num_hidden_layers"], heads=config["num_attention_heads"],
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
                                      **OF_KIND[kind])
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():  # no bias and no gain is that of the beginning
            for name, parameter in model.named_parameters():
                if name.endswith("bias") or "_norm" in name:
                    parameter.add_(torch.randn(parameter.shape) * 0.2)
        model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="30KB")
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
