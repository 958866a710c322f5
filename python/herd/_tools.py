"""The command herd, and what it prints as data."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

from ._errors import BadConfigError, Error
from ._library import library


_OWN = pathlib.Path(__file__).parent / "bin" / "herd"  # which a wheel carries


def version() -> str:
    """Returns the version of the library."""
    return library.herd_version().decode()


def verify(schedules: str) -> list[str]:
    """Proves the schedules of all ranks, as `herd show schedule OP` prints them. Returns what is wrong, a line for each
    finding; nothing where they are right."""
    findings = ctypes.c_void_p()
    library.herd_verify(schedules.encode(), ctypes.byref(findings))
    try:
        return library.herd_text(findings).decode().splitlines()
    finally:
        library.herd_text_free(findings)


def explain(op: str, *arguments: str) -> dict[str, Any]:
    """Returns what `herd explain OP ARGUMENTS... --json` prints: which algorithm would run, why, and what it costs."""
    return _run("explain", op, *arguments, "--json")


def plan(model: str, *arguments: str) -> dict[str, Any]:
    """Returns what `herd plan MODEL ARGUMENTS... --json` prints: memory, time and traffic of a run file or a model, and
    what would make it fit. Its members are in docs/formats/plan.md."""
    return _run("plan", model, *arguments, "--json")


def _command() -> str:
    found = os.environ.get("HERD_COMMAND") or (str(_OWN) if _OWN.exists() else shutil.which("herd"))
    if not found:
        raise BadConfigError(
            "kBadConfig", "the command herd is not here\n  fix: HERD_COMMAND=PATH of it, or its folder in PATH"
        )
    return found


def _run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([_command(), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise (BadConfigError if done.returncode == 2 else Error)("kBadConfig", done.stderr.strip())
    return json.loads(done.stdout)


def main() -> None:
    """Becomes the command that the wheel carries: what pip installs as the script herd."""
    if not _OWN.exists():
        sys.exit(f"herd: {_OWN} is not here\n  fix: pip install the wheel, or run the command of a build")
    os.execv(_OWN, ["herd", *sys.argv[1:]])
