"""Losses of the device in twenty-two meshes beside those of one CPU rank, and checkpoints between both."""
import concurrent.futures

from programs import CannotRun, Failed

# Losses of two orders of summation. fp32: an element of a matmul of k <= 2048 terms differs by about sqrt(k) * 2^-24 = 3e-6 of
# its size, a loss, which is a mean over 1024 tokens, by less; ten AdamW steps at a rate of 3e-4 move weights of 0.02 by up to
# 0.15 of themselves in directions that hang on signs of gradients near zero, and carry such a difference on about thirtyfold.
# bf16: the same with 2^-8 an element of activations, of which the mean over tokens leaves about five.
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}

# What a run of these ranks adds to the run file.
MESHES = [
    ("1 rank", 1, []),
    ("1 rank, recompute", 1, ["strategy.recompute=full"]),
    ("1 rank, weights read on the host", 1, ["strategy.offload=window", "strategy.direct_host=*"]),
    ("dp 2", 2, ["mesh.dp=2"]),
    ("dp 2, ZeRO-1", 2, ["mesh.dp=2", "strategy.zero=1"]),
    ("dp 2, staged", 2, ["mesh.dp=2", "comm.device_engine=staged"]),
    ("tp 2, staged", 2, ["mesh.tp=2", "comm.device_engine=staged"]),
    ("dp 2, ZeRO-2", 2, ["mesh.dp=2", "strategy.zero=2"]),
    ("dp 2, all as topk", 2, ["mesh.dp=2", "strategy.compression=topk", "strategy.compression_ratio=1"]),
    ("fsdp 2, ZeRO-3", 2, ["mesh.fsdp=2", "strategy.zero=3"]),
    ("tp 2", 2, ["mesh.tp=2"]),
    ("pp 2", 2, ["mesh.pp=2"]),
    ("cp 2", 2, ["mesh.cp=2"]),
    ("cp 2, ring", 2, ["mesh.cp=2", "strategy.context=ring"]),
    ("1 rank, packed", 1, ["data.packing=documents"]),
    ("cp 2, ring, packed", 2, ["mesh.cp=2", "strategy.context=ring", "data.packing=documents"]),
    ("dp 2, cp 2", 4, ["mesh.dp=2", "mesh.cp=2"]),
    ("fsdp 2, tp 2, ZeRO-3", 4, ["mesh.fsdp=2", "mesh.tp=2", "strategy.zero=3"]),
    ("dp 2, pp 2, ZeRO-1, recompute", 4, ["mesh.dp=2", "mesh.pp=2", "strategy.zero=1", "strategy.recompute=full"]),
]
# Of a mixture of experts. Its tokens go to the experts of the CPU's run: another rounding may choose others.
EXPERT_MESHES = [
    ("1 rank", 1, []),
    ("ep 2", 2, ["mesh.ep=2"]),
    ("ep 2, tp 2, ZeRO-1", 4, ["mesh.ep=2", "mesh.tp=2", "strategy.zero=1"]),
]
GPT_MESHES = ("1 rank", "1 rank, packed", "fsdp 2, ZeRO-3", "tp 2")
BF16_MESHES = ("1 rank", "1 rank, recompute", "1 rank, packed", "dp 2, ZeRO-2", "fsdp 2, ZeRO-3", "tp 2", "pp 2", "cp 2, ring",
               "cp 2, ring, packed")
SMALL_MODEL = ["model.layers=2", "model.width=32", "model.ffn=64", "model.heads=2", "model.kv_heads=1", "model.context=16",
               "model.vocab=64"]


def small_model(name):
    keys = [key for key in SMALL_MODEL if name != "gpt" or "kv_heads" not in key]
    return keys + (["model.expert_ffn=16"] if name == "moe" else [])


def reference_of(model, precision, mesh):
    """The run of one CPU rank whose losses a run is to have: of the same data."""
    return model, precision, tuple(key for key in mesh[2] if key.startswith("data."))


def largest_difference(losses, reference):
    """Relative, over steps."""
    if len(losses) != len(reference) or not reference:
        raise Failed(f"{len(losses)} steps of {len(reference)}")
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference))


def part_parity(c):
    def losses(model, device, ranks, precision, overrides):
        settings = [f"strategy.precision={precision}", "train.threads=" + ("1" if c.small else "4"), *overrides]
        settings += small_model(model) if c.small else []
        folder, steps = c.trainer.train(c.build.runs / f"small_{model}.toml", device, ranks, settings, c.left(60))
        return folder, [row["loss"] for row in steps]

    def reference_losses(model, precision, keys):
        routing = [f"train.record_routing={routing_of(model, precision)}"] if model == "moe" else []
        return losses(model, "cpu", 1, precision, ["checkpoint.every=5", *keys, *routing])

    def losses_of_device(one, reference):
        model, precision, (_, ranks, overrides) = one
        more = ["checkpoint.every=5"] if one == chosen[0] else []
        if model == "moe":
            reference.result()  # which chooses the experts
            more.append(f"train.replay_routing={routing_of(model, precision)}")
        return losses(model, c.device, ranks, precision, [*overrides, *more])

    def routing_of(model, precision):
        return c.trainer.work / f"routing_{model}_{precision}"

    chosen = [("llama", "fp32", mesh) for mesh in MESHES]
    chosen += [("gpt", "fp32", mesh) for mesh in MESHES if mesh[0] in GPT_MESHES]
    chosen += [("llama", "bf16", mesh) for mesh in MESHES if mesh[0] in BF16_MESHES]
    chosen += [("moe", precision, mesh) for precision in TOLERANCE for mesh in EXPERT_MESHES]
    if c.small:
        small = ("1 rank, weights read on the host", "fsdp 2, ZeRO-3", "cp 2", "cp 2, ring, packed")
        chosen = [("llama", "fp32", mesh) for mesh in MESHES if mesh[0] in small]
        chosen += [("gpt", "bf16", mesh) for mesh in MESHES if mesh[0] == "1 rank, recompute"]
        chosen += [("moe", "fp32", mesh) for mesh in EXPERT_MESHES if mesh[0] == "ep 2"]
    references = {reference_of(*one): None for one in chosen}
    # Several at a time: the models are small, and most of a run is its start.
    with concurrent.futures.ThreadPoolExecutor(2 if c.small else 4) as pool:
        started = {key: pool.submit(reference_losses, *key) for key in references}
        candidates = [(one, pool.submit(losses_of_device, one, started[reference_of(*one)])) for one in chosen]
        for key, future in started.items():
            with c.attempt(f"{', '.join([*key[:2], *key[2]])} on the CPU"):
                references[key] = future.result()
        first = None
        for one, future in candidates:
            model, precision, (name, _, _) = one
            with c.attempt(f"{model} {precision}: {name}"):
                folder, found = future.result()
                first = first or (folder, found)
                reference = references[reference_of(*one)]
                if reference is None:
                    raise CannotRun("no losses of the CPU's one rank to compare with")
                off = largest_difference(found, reference[1])
                c.report.row(f"{model} {precision}: {name}", f"losses differ by {off:.1e}", f"<= {TOLERANCE[precision]:.0e}",
                             off <= TOLERANCE[precision])
        at_half = "checkpoints/step-00000005"
        reference = references["llama", "fp32", ()]
        ways = [("a checkpoint of one CPU rank", reference, c.device, 2, ["mesh.fsdp=2", "strategy.zero=3"]),
                ("the device's checkpoint on a CPU rank", first, "cpu", 1, [])]
        resumed = [(what, source, pool.submit(losses, "llama", device, ranks, "fp32",
                                              [f"checkpoint.resume={source[0] / at_half}", *overrides]))
                   for what, source, device, ranks, overrides in ways if source]
        for what, source, future in resumed:
            with c.attempt(f"resumed: {what}"):
                off = largest_difference(future.result()[1], source[1][5:])
                c.report.row(f"resumed: {what}", f"losses differ by {off:.1e}", f"<= {TOLERANCE['fp32']:.0e}",
                             off <= TOLERANCE["fp32"])
