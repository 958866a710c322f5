"""GPT-2 in Hugging Face's format, in plain PyTorch or by transformers.

  python gpt2_logits.py make BY FOLDER TIED      writes a folder with random weights
  python gpt2_logits.py logits BY FOLDER         reads FOLDER and ids.bin in it (int64, rows of 11), writes logits.bin (fp32)
  python gpt2_logits.py encode BY FOLDER         by transformers: text.txt there as ids.txt, and those ids as back.txt
  python gpt2_logits.py serve                    each of these, as lines of the input; answers with a line, done or failed

BY is "torch" (this file's own reading of the format) or "transformers".
"""
import json
import math
import struct
import sys
import traceback

import numpy
import torch
import torch.nn.functional as F

LENGTH = 11
SHAPE = dict(vocab_size=97, n_positions=16, n_embd=48, n_layer=3, n_head=4)


def read_safetensors(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    types = {"F32": (numpy.float32, torch.float32), "BF16": (numpy.int16, torch.bfloat16), "F16": (numpy.int16, torch.float16)}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kept, seen = types[entry["dtype"]]
        flat = torch.from_numpy(numpy.frombuffer(data[8 + length + begin:8 + length + end], dtype=kept).copy())
        tensors[name] = flat.view(seen).float().view(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, at, blobs = {"__metadata__": {"format": "pt"}}, 0, []
    for name, tensor in tensors.items():
        blob = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def random_weights(tied):
    width, layers = SHAPE["n_embd"], SHAPE["n_layer"]
    shapes = {"wte.weight": (SHAPE["vocab_size"], width), "wpe.weight": (SHAPE["n_positions"], width)}
    for layer in range(layers):
        h = f"h.{layer}."
        for name, inside, outside in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                      ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
            shapes[h + name + ".weight"] = (inside, outside)
            shapes[h + name + ".bias"] = (outside,)
        for name in ("ln_1", "ln_2"):
            shapes[h + name + ".weight"] = shapes[h + name + ".bias"] = (width,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (width,)
    weights = {"transformer." + name: torch.randn(shape) * 0.2 for name, shape in shapes.items()}
    for layer in range(layers):  # the causal mask, which old files hold
        weights[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, SHAPE["n_positions"], SHAPE["n_positions"]).tril()
    if not tied:
        weights["lm_head.weight"] = torch.randn(SHAPE["vocab_size"], width) * 0.2
    return weights


def logits_of(folder, ids):
    config = json.load(open(f"{folder}/config.json"))
    assert config["activation_function"] == "gelu_new" and config["model_type"] == "gpt2"
    heads, epsilon = config["n_head"], config["layer_norm_epsilon"]
    weights = {n.removeprefix("transformer."): w for n, w in read_safetensors(f"{folder}/model.safetensors").items()}

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], epsilon)

    def conv1d(x, name):  # the format's linear layer: weight (in, out)
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    x = weights["wte.weight"][ids] + weights["wpe.weight"][:ids.shape[1]]
    mask = torch.full((ids.shape[1], ids.shape[1]), -math.inf).triu(1)
    for layer in range(config["n_layer"]):
        h = f"h.{layer}."
        q, k, v = (p.view(*ids.shape, heads, -1).transpose(1, 2)
                   for p in conv1d(norm(x, h + "ln_1"), h + "attn.c_attn").chunk(3, dim=-1))
        y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask, dim=-1) @ v
        x = x + conv1d(y.transpose(1, 2).reshape(x.shape), h + "attn.c_proj")
        up = conv1d(norm(x, h + "ln_2"), h + "mlp.c_fc")
        up = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up ** 3)))
        x = x + conv1d(up, h + "mlp.c_proj")
    head = weights["wte.weight"] if config["tie_word_embeddings"] else weights["lm_head.weight"]
    return norm(x, "ln_f") @ head.T


def main(action, by, folder, tied="true"):
    torch.set_num_threads(1)
    torch.manual_seed(5)
    if by == "transformers":
        from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel
    if action == "encode":
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer(open(f"{folder}/text.txt", newline="").read(), add_special_tokens=False)["input_ids"]
        open(f"{folder}/ids.txt", "w").write(" ".join(map(str, ids)))
        open(f"{folder}/back.txt", "w", newline="").write(tokenizer.decode(ids))
        assert tokenizer.eos_token_id == 2
        return
    if action == "make" and by == "torch":
        write_safetensors(f"{folder}/model.safetensors", random_weights(tied == "true"))
        config = dict(SHAPE, model_type="gpt2", activation_function="gelu_new", layer_norm_epsilon=1e-5,
                      tie_word_embeddings=tied == "true", n_inner=None)
        json.dump(config, open(f"{folder}/config.json", "w"))
    elif action == "make":
        GPT2LMHeadModel(GPT2Config(**SHAPE, tie_word_embeddings=tied == "true", initializer_range=0.2)).save_pretrained(folder)
    else:
        ids = torch.from_numpy(numpy.fromfile(f"{folder}/ids.bin", dtype=numpy.int64)).view(-1, LENGTH)
        with torch.no_grad():
            if by == "torch":
                logits = logits_of(folder, ids)
            else:
                model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
                assert not (info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]), info
                logits = model.eval()(ids).logits
        logits.float().numpy().tofile(f"{folder}/logits.bin")


def serve(call):
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            call(*line.split())
            answer = "done"
        except Exception:
            traceback.print_exc()
            answer = "failed"
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    serve(main) if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
