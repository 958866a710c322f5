"""A step of a Llama of 1.17 B parameters beside plain PyTorch's."""
import functools
import json
import os
import re
import statistics

from parity import small_model
from programs import Failed, run

PEAK_FLOPS = 989e12  # of an H100 or H200 in bf16 with fp32 sums, dense


def flops_a_token(model):
    """6 N + 6 L T D: forward and backward multiply each token with N weights (all but the table of the embedding, which is
    looked up), 2 FLOPs each and twice that backward; attention's two products cost 2 T D each and layer in forward, twice that
    backward, of which causal attention needs half. L layers, T context, D width."""
    width, layers, heads = model["width"], model["layers"], model["heads"]
    kv_width = width // heads * (model.get("kv_heads", 0) or heads)
    layer = 2 * width * width + 2 * width * kv_width + 3 * width * model["ffn"]
    weights = layers * layer + width * model["vocab"]
    return 6 * weights + 6 * layers * model["context"] * width


def model_of(file):
    import tomllib

    with open(file, "rb") as text:
        return tomllib.load(text)["model"]


def part_speed(c):
    file = c.build.runs / "llama_1b.toml"
    model = model_of(file)
    overrides = ["train.steps=12", f"train.batch={c.args.batch}", f"train.micro_batch={c.args.micro_batch}"]
    skipped = 3  # warm-up: first allocations, choice of kernels
    if c.small:
        overrides = ["train.steps=3", "train.batch=2", "train.micro_batch=1", "strategy.precision=fp32", "train.threads=1",
                     *small_model("llama")]
        skipped = 1
        model = {**model, **{k.split("=")[0].split(".")[1]: int(k.split("=")[1]) for k in small_model("llama")}}
    tokens = (2 if c.small else c.args.batch) * model["context"]
    peers = {"torch eager": [], **({} if c.small else {"torch compiled": ["--compile"]})}
    sizes = dict.fromkeys(("herd", *peers), 1 if c.small else c.args.micro_batch)
    times, last = {}, None

    def with_micro_batch(size):
        return [*(o for o in overrides if not o.startswith("train.micro_batch")), f"train.micro_batch={size}"]

    def as_fits(name, measure):
        """Measures at the largest micro-batch that fits, of the one asked for and halves of it."""
        while True:
            try:
                return measure(with_micro_batch(sizes[name]))
            except Failed as why:
                if sizes[name] == 1 or not re.search(r"out of memory|OverBudget|OutOfMemory", why.output):
                    raise
                sizes[name] //= 2

    def herd(overrides):
        nonlocal last
        _, steps = c.trainer.train(file, c.device, 1, overrides, c.left(100))
        if len(steps) <= skipped:
            raise Failed(f"{len(steps)} steps")
        last = steps[-1]
        times.setdefault("herd", []).extend(row["step_ms"] for row in steps[skipped:])
        c.report.sample("speed herd", times["herd"])

    def peer(name, overrides):
        c.needs_torch()
        threads = {"OMP_NUM_THREADS": "1"} if c.small else {}
        output = run(c.report, [c.build.python, c.build.runs / "llama_torch.py", file, "--device", c.device, *peers[name],
                                "--set", *[o for o in overrides if not o.startswith("train.threads")]], c.left(120),
                     {**os.environ, **threads})
        rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        times.setdefault(name, []).extend(row["ms"] for row in rows if row.get("step", 0) > skipped)
        c.report.sample(f"speed {name}", times[name])
        c.report.sample(f"speed {name} peak_bytes", rows[-1].get("peak_bytes"))

    for turn in range(1 if c.small else 2):
        for name in ("herd", *peers):
            if turn > 0 and name not in times:
                continue  # it said why
            with c.attempt(f"{name}, turn {turn + 1}"):
                as_fits(name, herd if name == "herd" else functools.partial(peer, name))
    medians = {name: statistics.median(values) for name, values in times.items() if values}
    for name, ms in medians.items():
        rate = tokens * flops_a_token(model) / (ms / 1e3)
        said = f"{ms:.1f} ms a step of {tokens} tokens, micro-batches of {sizes[name]}, {tokens / ms * 1e3:.0f} tokens/s"
        if c.small:
            c.report.row(name, said)
        else:
            asked = name == "herd"
            c.report.row(name, f"{said}, {rate / PEAK_FLOPS:.1%} of {PEAK_FLOPS / 1e12:.0f} TFLOP/s", ">= 50 %" if asked else "",
                         rate >= 0.5 * PEAK_FLOPS if asked else None)
    for name, least in (("torch eager", 1.15), ("torch compiled", 1.0)):
        if "herd" in medians and name in medians:
            ratio = medians[name] / medians["herd"]
            c.report.row(f"herd beside {name}", f"{ratio:.2f}x", f">= {least}x", None if c.small else ratio >= least)
    if last:
        for what, measured, predicted, within in (
                ("step, predicted", medians["herd"], last["predicted_step_ms"], 0.10),
                ("peak memory, predicted", last["device_bytes_peak"], last["predicted_device_bytes_peak"], 0.03)):
            if not predicted:
                c.report.not_run(what, "herd predicted nothing")
                continue
            ratio = measured / predicted
            unit = (lambda x: f"{x:.1f} ms") if "step" in what else (lambda x: f"{x / 2**30:.2f} GiB")
            c.report.row(what, f"{unit(predicted)}, measured {unit(measured)}, {ratio - 1:+.1%}", f"within {within:.0%}",
                         None if c.small else abs(ratio - 1) <= within)
