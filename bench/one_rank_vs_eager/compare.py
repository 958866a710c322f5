#!/usr/bin/env python3
"""Is one rank of herd as fast as torch eager? GPT of 162 M parameters, fp32, one thread, fused AdamW on both sides.

    python bench/one_rank_vs_eager/compare.py [--program build/release/bench/one_rank] [--python .venv/bin/python]
        [--pairs 5] [--layers 12 --width 768 --vocab 50257 --context 256 --batch 2]

Both programs run at once, but take turns: a step of one, then a step of the other, so that whatever else the machine does
hits both alike. Prints one JSON object: medians, and the median of the ratios of neighbouring steps (below 1: herd is
faster), by the clock and by processor time, which a busy machine disturbs less. Peak memory is each process's VmHWM.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--program", default="build/release/bench/one_rank")
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--pairs", type=int, default=5)
for name, value in (("layers", 12), ("width", 768), ("vocab", 50257), ("context", 256), ("batch", 2)):
    parser.add_argument(f"--{name}", type=int, default=value)
args = parser.parse_args()
sizes = [str(v) for v in (args.layers, args.width, args.vocab, args.context, args.batch)]
here = os.path.dirname(os.path.abspath(__file__))


class Side:
    def __init__(self, name, command):
        self.name, self.steps, self.updates, self.processor = name, [], [], []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
        self.parameters = int(self.process.stdout.readline().split()[1])

    def step(self):
        print(file=self.process.stdin, flush=True)
        values = [float(v) for v in self.process.stdout.readline().split()]
        self.steps.append(values[0])
        self.updates.append(values[1])
        self.processor.append(values[2])

    def peak_gib(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 2**20


herd = Side("herd", [args.program, *sizes])
torch = Side("torch", [args.python, f"{here}/eager.py", *sizes])
assert herd.parameters == torch.parameters, (herd.parameters, torch.parameters)
for _ in range(args.pairs + 1):
    for side in (herd, torch):
        side.step()
report = {"parameters": herd.parameters, "tokens": args.context * args.batch, "pairs": args.pairs}
for side in (herd, torch):
    report[side.name] = {"step_ms": round(statistics.median(side.steps[1:]), 1), "min_ms": round(min(side.steps[1:]), 1),
                         "update_ms": round(statistics.median(side.updates[1:]), 1), "processor_ms": round(statistics.median(side.processor[1:]), 1),
                         "peak_gib": round(side.peak_gib(), 2)}
    side.process.stdin.close()
    side.process.wait()
report["ratio"] = round(statistics.median(h / t for h, t in zip(herd.steps[1:], torch.steps[1:])), 3)
report["processor_ratio"] = round(statistics.median(h / t for h, t in zip(herd.processor[1:], torch.processor[1:])), 3)
print(json.dumps(report))
