"""States, weights and activations on the host and in files, beside the same steps in memory."""
import statistics

from parity import small_model
from programs import Failed


def part_offload(c):
    file = c.build.runs / ("small_llama.toml" if c.small else "llama_1b.toml")
    passes = 2 if c.small else 8

    def measure(name, overrides, micro_batch):
        settings = [f"train.steps={3 if c.small else 5}", f"train.micro_batch={micro_batch}", f"train.batch={passes * micro_batch}"]
        settings += ["train.threads=1", *small_model("llama")] if c.small else []
        _, steps = c.trainer.train(file, c.device, 1, [*settings, *overrides], c.left(60))
        if len(steps) < 3:
            raise Failed(f"{len(steps)} steps")
        ms = statistics.median(row["step_ms"] for row in steps[1 if c.small else 2:])
        c.report.sample(f"offload {name}", steps)
        return ms, max(row["device_bytes_peak"] for row in steps)

    def compare(what, base_overrides, overrides, micro_batch, asked, most, memory_ratio, budget_share=0):
        with c.attempt(what):
            in_memory, peak = measure(f"{what}: in memory", base_overrides, micro_batch)
            budget = [f"memory.device_budget={int(peak * budget_share)}"] if budget_share and not c.small else []
            offloaded, lower = measure(what, [*base_overrides, *overrides, *budget], micro_batch)
            ratio = offloaded / in_memory
            said = f"{ratio:.2f}x of the step in memory ({offloaded:.0f} and {in_memory:.0f} ms); "
            said += f"{lower / 2**30:.2f} GiB, in memory {peak / 2**30:.2f}"
            c.report.row(what, said, asked, None if c.small else ratio <= most and peak >= memory_ratio * lower)

    compare(f"states on the host, {passes} micro-batches", [], ["strategy.offload=states"], 1 if c.small else c.args.micro_batch,
            "<= 1.15x", 1.15, 1)
    compare("a window of weights", ["strategy.recompute=full"], ["strategy.offload=window"], 1,
            "<= 1.67x, within a third of the memory", 1 / 0.6, 3, 1 / 3)
    compare("activations on the host", ["strategy.recompute=full"], ["strategy.offload_activations=host"], 1, "less memory",
            float("inf"), 1)
    compare("weights and states in files", ["strategy.recompute=full"], ["strategy.offload=nvme", f"memory.nvme_path={c.work}"], 1,
            "a third of the memory", float("inf"), 3)
    compare("a window, embedding and head read on the host", ["strategy.recompute=full"],
            ["strategy.offload=window", "strategy.direct_host=embedding head"], 1, "a third of the memory", float("inf"), 3)
