#!/usr/bin/env python3
"""What does training together cost, and how do others fare? A GPT of 162 M parameters, fused AdamW, one thread a rank.

    python bench/training_peers/compare.py [--build build/release] [--python .venv/bin/python] [--ranks 2] [--steps 8]
        [--only NAME,NAME] [--record training_peers] [--add] [--layers 12 --width 768 --vocab 50257 --context 256 --batch 2]

Contenders of one sitting all run at once, but take turns: each makes a step while the others are stopped (SIGSTOP), so
that what else the machine does meets all alike, and every step has a neighbour of each other contender. A turn lasts from
SIGCONT until the contender has printed the step. The first of a sitting is the floor of the others:

SITTINGS

train alone      as many independent one-rank runs of `herd train` side by side as there are ranks
herd train       one run of all ranks, gradients clipped by their norm as by default
zero1 .. zero3   the same with strategy.zero = 1 .. 3
full             the same with strategy.recompute = "full"
selective        model.dropout = 0.1 and strategy.recompute = "selective", beside the dropout alone (without dropout no
                 T x T matrix is kept, and the program is the same)
bf16 ...         strategy.precision = "bf16"
module alone     runs side by side of a plain torch module in C++, the floor of herd::DistributedDataParallel on it
torch reducer    torch's data parallelism from C++, c10d::Reducer over gloo, on that module; build it first:
                 cmake --build build/release --target gloo_reducer
torch ...        torch's own over gloo, from Python, each with its fused AdamW: see torch_peers.py
deepspeed bf16   DeepSpeed's ZeRO-3, where --python has it
deepspeed nvme   DeepSpeed's ZeRO-3 in fp32 with weights and states in files, without clipping; `nvme unclipped` is herd's
one rank, torch eager   one process each
states, window, nvme    zero2 with what strategy.offload names away from the device; window and nvme as `herd train` has them
pp ORDER         a pipeline of two ranks, --micro-batches of --batch, strategy.pipeline = ORDER; `unclipped`: without norms
torch ... over herd, over fake    the same program over herd's process group, or over torch's that moves nothing
torch pp_ORDER   torch.distributed.pipelining, the same, its stages cut by hand
torch tp, torch tp_sequence    layers that ranks share, by DTensor; with sequence and loss parallel
tp, tp sequence  layers that two ranks share, --batch on both together: half of the work of `train alone` for each
cp, cp all_to_all    sequences that all ranks share, --batch on all together: the work of `train alone` by their number for each
experts          8 experts a layer, of which a token takes 2, each rank with a part of them; experts alone: runs side by side, each with
                 all experts; dense: one feed-forward of the size that a token uses; torch experts: rows by all_to_all_single
... balanced     the same, but tokens go to experts in turn (train.replay_routing), so that all have equal shares; each run of
                 `experts alone balanced` has the work of one rank of `experts balanced`
torch cp         the same by torch's private templates of ring attention; it has no stock one for CPUs
before NAME      the contender NAME, by the herd of --before BUILD: what has a change cost?

The first two turns are left out: memory is read in them, the sum of the PSS of a contender's processes at its highest.
Ranks that work together wait for the slower one at every step, runs side by side do not: hence also the ratio to the
slower of the floor's runs, step by step. A sitting needs the memory of all its contenders at once; with --only the named
ones make a sitting. The table goes to standard output. With --record the samples, one object a sitting and contender
(ranks, sitting, contender, ms: of each step a list with the time of each run, predicted_ms: herd train's, pss_gib), are
kept as bench/recorded/NAME.jsonl, and the table is written into docs/guide/benchmarks.md; with --add those that it holds
count, too, and --steps 0 adds none.
"""
import argparse
import json
import os
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WARM_UP = 2
SITTINGS = [["train alone", "herd train", "zero1"], ["train alone", "zero2", "zero3"], ["herd train", "full"],
            ["dropout", "selective"], ["bf16 alone", "bf16 train", "bf16 zero3"], ["torch bf16 alone", "bf16 train"],
            ["module alone", "herd ddp", "torch reducer"], ["module alone", "herd ddp", "torch ddp"], ["torch ddp", "herd train"], ["torch zero", "zero1"],
            ["torch fsdp2", "zero3"], ["torch fsdp2_bf16", "bf16 zero3"], ["deepspeed bf16", "bf16 zero3"],
            ["torch eager", "one rank"]]
ORDERS = ("gpipe", "1f1b", "interleaved", "zero_bubble_h1", "zero_bubble_v")
# Of --context 128 --batch 1, eight micro-batches: not in a sitting by default.
PIPELINES = [["pp 1f1b", "torch pp_1f1b", "pp zero_bubble_v", "torch pp_zero_bubble_v"],
             ["pp gpipe", "torch pp_gpipe", "pp interleaved", "torch pp_interleaved"],
             ["train alone", "tp", "tp sequence", "torch tp", "torch tp_sequence"],
             ["pp zero_bubble_h1", *(f"pp {order} unclipped" for order in ORDERS)]]
# Not in a sitting by default; the first is worth its time from --context 4096 --batch 1 on.
CONTEXT_AND_TIERS = [["train alone", "cp", "cp all_to_all"], ["zero2", "states"], ["herd train", "window", "nvme"]]
# Of --layers 6 --width 512: not in a sitting by default.
EXPERTS = [["experts", "dense", "experts alone", "torch experts"],
           ["experts alone balanced", "experts balanced", "experts"]]
# PyTorch's programs over herd, and over nothing: not in a sitting by default.
PYTORCH = [[f"torch {kind}", f"torch {kind} over herd", f"torch {kind} over fake"] for kind in ("ddp", "fsdp2", "tp")]

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(here))
import page  # noqa: E402
import tables  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__.replace("SITTINGS", "\n".join(f"    {', '.join(s)}" for s in SITTINGS)),
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--before", metavar="BUILD", help="another build: \"before NAME\" is the contender NAME by its herd")
parser.add_argument("--python", default=sys.executable, help="a Python with torch")
parser.add_argument("--record", metavar="NAME", help="keep the samples as those of this table of the page")
parser.add_argument("--only", default="", help="one sitting of these, with commas between; default: all sittings")
parser.add_argument("--add", action="store_true", help="to the sittings that are kept")
for name, value in (("ranks", 2), ("steps", 8), ("layers", 12), ("width", 768), ("vocab", 50257), ("context", 256),
                    ("batch", 2), ("micro-batches", 8)):
    parser.add_argument(f"--{name}", type=int, default=value)
args = parser.parse_args()
turns = WARM_UP + args.steps
sizes = [str(v) for v in (args.layers, args.width, args.vocab, args.context, args.batch, turns)]
program = f"{args.build}/bench/herd_ddp"
herd = f"{args.build}/herd"
scratch = tempfile.TemporaryDirectory(prefix="herd_training_peers.")

MODEL = f"{here}/../../share/herd/models/gpt-162m.toml"
SETTINGS = [f"model.layers={args.layers}", f"model.width={args.width}", f"model.heads={args.width // 64}",
            f"model.context={args.context}", f"model.vocab={args.vocab}", f"train.micro_batch={args.batch}", f"train.steps={turns}",
            "train.eval_every=0", "train.threads=1", "comm.deadline_s=3600", "optimizer.lr=1e-3", "checkpoint.every=-1",
            "checkpoint.resume=none", f"log.dir={scratch.name}", "log.every=1"]


def process_tree(root):
    """The process and all below it."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents.setdefault(int(open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
        except OSError:
            pass
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def pss_bytes(pids):
    """Memory of processes; what they share counts once."""
    total = 0
    for pid in pids:
        try:
            total += int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M)[1]) << 10
        except (OSError, TypeError):
            pass
    return total


class Run:
    """A program that prints one line a step: its processes run until they have, and stop."""

    def __init__(self, command, environment):
        self.command, self.text, self.seen = command, b"", 0
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
        os.set_blocking(self.process.stdout.fileno(), False)

    def signal(self, number):
        for pid in process_tree(self.process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def printed_a_step(self):
        """Whether what came in since holds the line of a step; ends this comparison where the program ended instead."""
        chunk = self.process.stdout.read()
        if chunk == b"":
            sys.exit(f"ended early ({self.process.wait()}): {' '.join(self.command)}\n{self.text.decode()[-2000:]}")
        self.text += chunk or b""
        steps = len(re.findall(rb"(?m)(?:\bstep \d+/|\bms \d).*\n", self.text))
        news, self.seen = steps > self.seen, steps
        return news


class Contender:
    """Runs that make their steps side by side; `steps` has the milliseconds of each, one a run."""

    def __init__(self, name):
        self.name, self.steps, self.pss = name, [], 0
        make = CONTENDERS[name.removeprefix("before ")]
        self.runs = [Run([f"{args.before}/herd" if part == herd and name.startswith("before ") else part for part in command],
                         environment) for command, environment in make(name.replace(" ", "_"))]

    def turn(self, watch):
        start, took = time.monotonic(), {}
        for run in self.runs:
            run.signal(signal.SIGCONT)
        with selectors.DefaultSelector() as ready:
            for run in self.runs:
                ready.register(run.process.stdout, selectors.EVENT_READ, run)
            while len(took) < len(self.runs):
                for key, _ in ready.select(0.5 if watch else None):
                    if key.data.printed_a_step():
                        took[key.data] = 1e3 * (time.monotonic() - start)
                        key.data.signal(signal.SIGSTOP)
                        ready.unregister(key.fileobj)
                if watch:
                    self.pss = max(self.pss, pss_bytes([pid for run in self.runs for pid in process_tree(run.process.pid)]))
        self.steps.append([took[run] for run in self.runs])

    def end(self):
        """Lets the runs come to their end; the last turn had their last step."""
        for run in self.runs:
            run.signal(signal.SIGCONT)
        for run in self.runs:
            os.set_blocking(run.process.stdout.fileno(), True)
            run.process.stdout.read()
            run.process.wait()

    def predicted_ms(self):
        try:
            with open(f"{scratch.name}/{self.name.replace(' ', '_')}0/metrics.jsonl") as lines:
                return [row["predicted_step_ms"] for row in map(json.loads, lines) if "predicted_step_ms" in row][-1]
        except OSError:
            return 0


def herd_train(runs, ranks, *overrides):
    def commands(name):
        for i in range(runs):
            yield ([herd, "train", MODEL, "--ranks", str(ranks), *SETTINGS, f"train.batch={ranks * args.batch}",
                    f"log.name={name}{i}", *overrides], {})
    return commands


def balanced(make, batch):
    """The commands of `make`, whose tokens go to experts in turn: those of a token lie as far apart as they can."""
    def commands(name):
        folder = f"{scratch.name}/balanced{batch}"
        os.makedirs(folder, exist_ok=True)
        experts = [(token + EXPERTS_OF_LAYER // TOP_K * j) % EXPERTS_OF_LAYER for token in range(args.context) for j in range(TOP_K)]
        with open(f"{folder}/rank0.jsonl", "w") as file:
            print(json.dumps({"format": "herd-routing", "version": 1}), file=file)
            for sample in range(turns * batch):
                for layer in range(args.layers):
                    print(json.dumps({"step": sample // batch + 1, "layer": layer, "sample": sample, "top_k": TOP_K,
                                      "experts": experts}), file=file)
        for command, environment in make(name):
            yield [*command, f"train.replay_routing={folder}"], environment
    return commands


def plain(*commands):
    return lambda name: [(command, {}) for command in commands]


def torch_together(kind, backend="gloo"):
    return torch_ranks(f"BACKEND={backend} PYTHONPATH={os.path.abspath(args.build)}/python {args.python} {here}/torch_peers.py {kind}")


def torch_ranks(program):
    def commands(name):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = str(s.getsockname()[1])
        # The launcher's place is taken by a shell, so that the ranks stop and go on together.
        rank = f"RANK=$r LOCAL_RANK=$r {program} {' '.join(sizes)} &"
        return [(["bash", "-c", f"for r in $(seq 0 {args.ranks - 1}); do {rank} done; wait"],
                 {"WORLD_SIZE": str(args.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "MICRO_BATCHES": str(args.micro_batches)})]
    return commands


def torch_alone(kind, runs):
    return plain(*[[args.python, f"{here}/torch_peers.py", kind, *sizes]] * runs)


DROPOUT = "model.dropout=0.1"
PIPELINE = ("mesh.pp=2", f"train.batch={args.micro_batches * args.batch}")
BF16 = "strategy.precision=bf16"
GATED = (f"model.kv_heads={args.width // 64}",)
EXPERTS_OF_LAYER, TOP_K = 8, 2
MIXTURE = ("model.kind=moe", f"model.experts={EXPERTS_OF_LAYER}", f"model.top_k={TOP_K}", *GATED, f"model.expert_ffn={2 * args.width}")
CONTENDERS = {
    "train alone": herd_train(args.ranks, 1),
    "herd train": herd_train(1, args.ranks),
    **{f"zero{stage}": herd_train(1, args.ranks, f"strategy.zero={stage}") for stage in (1, 2, 3)},
    "full": herd_train(1, args.ranks, "strategy.recompute=full"),
    "dropout": herd_train(1, args.ranks, DROPOUT),
    "selective": herd_train(1, args.ranks, DROPOUT, "strategy.recompute=selective"),
    "bf16 alone": herd_train(args.ranks, 1, BF16),
    "bf16 train": herd_train(1, args.ranks, BF16),
    "bf16 zero3": herd_train(1, args.ranks, BF16, "strategy.zero=3"),
    "module alone": plain(*[[program, "alone", *sizes]] * args.ranks),
    "herd ddp": plain([herd, "run", "-n", str(args.ranks), "--", program, "herd", *sizes]),
    "torch reducer": torch_ranks(f"{args.build}/bench/gloo_reducer"),
    **{f"torch {kind}": torch_together(kind) for kind in ("ddp", "zero", "fsdp2", "fsdp2_bf16", "tp", "tp_sequence", "cp", "experts")},
    **{f"torch {kind} over {backend}": torch_together(kind, backend) for kind in ("ddp", "fsdp2", "tp")
       for backend in ("herd", "fake")},
    "deepspeed bf16": torch_together("deepspeed_bf16"),
    "deepspeed nvme": torch_together("deepspeed_nvme"),
    "torch bf16 alone": torch_alone("bf16", args.ranks),
    "torch eager": torch_alone("eager", 1),
    "one rank": herd_train(1, 1),
    **{f"pp {order}": herd_train(1, 2, *PIPELINE, f"strategy.pipeline={order}") for order in ORDERS},
    **{f"pp {order} unclipped": herd_train(1, 2, *PIPELINE, f"strategy.pipeline={order}", "optimizer.clip=0",
                                           "health.check_finite=false") for order in ORDERS},
    **{f"torch pp_{order}": torch_together(f"pp_{order}") for order in ORDERS if order != "zero_bubble_h1"},
    **{name: herd_train(1, args.ranks, f"mesh.cp={args.ranks}", f"train.batch={args.batch}", f"strategy.context={context}")
       for name, context in (("cp", "ring"), ("cp all_to_all", "all_to_all"))},
    "states": herd_train(1, args.ranks, "strategy.zero=2", "strategy.offload=states"),
    **{name: herd_train(1, args.ranks, f"strategy.offload={name}")
       for name in ("window", "nvme")},
    "nvme unclipped": herd_train(1, args.ranks, "strategy.offload=nvme", "optimizer.clip=0", "health.check_finite=false"),
    "experts": herd_train(1, args.ranks, *MIXTURE, f"mesh.ep={args.ranks}"),
    "experts alone": herd_train(args.ranks, 1, *MIXTURE),
    "experts balanced": balanced(herd_train(1, args.ranks, *MIXTURE, f"mesh.ep={args.ranks}"), args.ranks * args.batch),
    "experts alone balanced": balanced(herd_train(args.ranks, 1, *MIXTURE), args.batch),
    "dense": herd_train(1, args.ranks, "model.kind=llama", *GATED, f"model.ffn={4 * args.width}"),
    "tp": herd_train(1, 2, "mesh.tp=2", f"train.batch={args.batch}", "strategy.sequence_parallel=false"),
    "tp sequence": herd_train(1, 2, "mesh.tp=2", f"train.batch={args.batch}"),
}


def sit(names, sitting):
    """The rows of one sitting."""
    contenders = []
    try:
        for turn in range(turns):
            for name in names if turn == 0 else []:
                contenders.append(Contender(name))
                contenders[-1].turn(watch=True)  # builds its model while the others are stopped
            # There and back, so that none always follows the same one.
            for contender in [] if turn == 0 else contenders if turn % 2 else reversed(contenders):
                contender.turn(watch=turn < WARM_UP)
            print(f"sitting of {', '.join(names)}: {turn + 1} of {turns} turns", file=sys.stderr)
        for contender in contenders:
            contender.end()
    finally:
        for run in (run for contender in contenders for run in contender.runs if run.process.poll() is None):
            run.signal(signal.SIGKILL)
    return [{"ranks": args.ranks, "sitting": sitting, "contender": c.name, "ms": [[round(ms, 1) for ms in step] for step in c.steps[WARM_UP:]],
             "pss_gib": round(c.pss / 2**30, 3), "batch": args.batch, "context": args.context,
             "micro_batches": args.micro_batches, **({"predicted_ms": c.predicted_ms()} if c.predicted_ms() else {})} for c in contenders]


rows = [row for row in page.recorded(args.record) if row["ranks"] == args.ranks] if args.add else []
for names in [] if args.steps == 0 else [args.only.split(",")] if args.only else SITTINGS:
    rows += sit(names, max((row["sitting"] for row in rows), default=-1) + 1)
    if args.record:
        page.record(args.record, "training_peers", rows)
print(tables.markdown(*tables.training_peers(rows)))
