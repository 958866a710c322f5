"""herd's programs as scripts/gpu_check starts them, each within a limit."""
import contextlib
import functools
import importlib.util
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLED = (ROOT / "bundle.json").exists()


class CannotRun(Exception):
    """A part or row that this machine or this build can't run, and why."""


class Failed(Exception):
    """A program that ran and should have ended well."""

    def __init__(self, message, output=""):
        super().__init__(message)
        self.output = output


class Build:
    """herd's programs and the environment that they start in."""

    def __init__(self, args):
        self.bin = pathlib.Path(args.build) if args.build else ROOT / ("bin" if BUNDLED else "build/release")
        self.tests = self.bin / "tests" if (self.bin / "tests").is_dir() else self.bin.parent / "tests"
        self.herd = str(self.bin / "herd")
        self.python = args.python
        self.runs = ROOT / "bench" / "gpu"
        self.environment = dict(os.environ)
        if BUNDLED:
            spec = importlib.util.find_spec("torch")
            if spec is None:
                sys.exit(f"gpu_check: {sys.executable} has no torch, whose libraries herd needs\n  fix: a python3 that has it")
            torch = pathlib.Path(spec.submodule_search_locations[0])
            folders = [ROOT / "lib", torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]
            old = os.environ.get("LD_LIBRARY_PATH")
            self.environment["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *([old] if old else [])])
        if not os.access(self.herd, os.X_OK):
            sys.exit(f"gpu_check: {self.herd} is not there\n  fix: scripts/gpu_bundle, or --build FOLDER with herd in it")


def run(report, command, seconds, environment=None, check=True):
    """The output of a command, which is in the log too. Ends its whole process group at the limit."""
    begun = time.monotonic()
    try:
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=environment, start_new_session=True, errors="replace")
    except FileNotFoundError:
        raise CannotRun(f"{command[0]} is not here")
    try:
        output, timed_out = process.communicate(timeout=max(1, seconds))[0], False
    except subprocess.TimeoutExpired:
        end_group(process)
        output, timed_out = process.communicate()[0], True
    report.log(f"$ {' '.join(map(str, command))}\n{output}-- status {process.returncode}, {time.monotonic() - begun:.1f} s\n")
    if timed_out and check:
        raise Failed(f"stopped after {seconds:.0f} s; its output is in gpu_check.log", output)
    if process.returncode != 0 and check:
        raise Failed(f"status {process.returncode}: {first_error(output)}", output)
    return output


def end_group(process):
    """SIGTERM, so that a launcher ends its ranks, then SIGKILL."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def first_error(output):
    """The line of an output that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in output:
        lines.reverse()
    telling = [line for line in lines if re.search(r"\bk[A-Z]\w+:|[Ee]rror|error:|CUDA", line)]
    return ((telling or lines[-1:] or ["no output"])[0])[:160]


class Trainer:
    """herd train on one of the devices."""

    def __init__(self, build, report, work):
        self.build, self.report, self.work = build, report, work
        self.number = itertools.count(1)

    @functools.cached_property
    def knows_devices(self):
        return "[device]" in run(self.report, [self.build.herd, "train", "--help"], 30, self.build.environment)

    def settings(self, device):
        if self.knows_devices:
            return [f"device.kind={device}"]
        if device != "cpu":
            raise CannotRun("this herd has no key device.kind")
        return []

    def command(self, file, device, ranks, overrides, name):
        return [self.build.herd, "train", file, "--ranks", ranks, *self.settings(device), f"log.dir={self.work}",
                f"log.name={name}", *overrides]

    def train(self, file, device, ranks, overrides, seconds):
        """The folder of the run and its steps, each an object of metrics.jsonl."""
        name = f"run{next(self.number)}"
        run(self.report, self.command(file, device, ranks, overrides, name), seconds, self.build.environment)
        folder = self.work / name
        return folder, steps_of(folder)


def steps_of(folder):
    try:
        with open(folder / "metrics.jsonl") as lines:
            return [row for row in map(json.loads, lines) if "step_ms" in row]
    except (OSError, ValueError):
        return []
