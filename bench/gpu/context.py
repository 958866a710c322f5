"""What the parts of scripts/gpu_check share: programs, the report, and how much time is left."""
import contextlib
import json
import subprocess
import time
import traceback

from programs import CannotRun, Failed, Trainer, run


class Context:
    def __init__(self, args, build, report, work):
        self.args, self.build, self.report, self.work = args, build, report, work
        self.device, self.small = args.device, args.device == "cpu"
        self.trainer = Trainer(build, report, work)
        self.patience = 4 if self.small else 1  # other programs may run on the cores
        self.deadline = time.monotonic() + args.minutes * 60 * self.patience
        self.part_deadline = self.deadline

    def left(self, most=1e9):
        """Seconds that a command of this part may take."""
        left = min(self.deadline, self.part_deadline) - time.monotonic()
        if left < 3:
            raise CannotRun("no time left")
        return min(left, most * self.patience)

    def needs_torch(self):
        finds = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        if subprocess.run([self.build.python, "-c", finds]).returncode != 0:
            raise CannotRun(f"{self.build.python} has no torch")

    @contextlib.contextmanager
    def attempt(self, what):
        """A row that says why, where what stands inside can't run."""
        try:
            yield
        except CannotRun as why:
            self.report.not_run(what, why)
        except Failed as why:
            self.report.row(what, f"failed: {why}", "runs", False)
        except Exception as error:  # a slip of this script must not end the parts that follow
            self.report.log("".join(traceback.format_exception(error)))
            self.report.row(what, f"{type(error).__name__}: {error}"[:200], "runs", False)


def probe(context, *arguments, seconds=60):
    """The object that a probe prints."""
    if arguments[0] != "drive":
        context.needs_torch()
    output = run(context.report, [context.build.python, context.build.runs / "probes.py", *arguments], seconds)
    return json.loads(output.strip().splitlines()[-1])


def gigabytes(rate):
    return f"{rate / 1e9:.1f} GB/s" if rate < 1e12 else f"{rate / 1e12:.2f} TB/s"
