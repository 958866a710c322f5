"""Builds the wheel of what a build of herd has made, installs it in a fresh environment that has only torch beside it, and
runs the guide's examples from another folder; then in one that has numpy alone, where the collectives on arrays and the
command herd are tested. Needs no network: torch and the tools that build wheels are this Python's.

    python wheel.py [BUILD]  without one the wheel is built from source, as a user does
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from guide import SOURCE, examples, run_torchrun

sys.path.insert(0, str(SOURCE / "python"))
from bundle_libraries import SYSTEM, TORCH, patchelf  # noqa: E402

# What the process has mapped is the wheel's.
CHECK = """
import sys, herd_torch
assert herd_torch.__file__.startswith(sys.prefix), herd_torch.__file__
assert all(path.startswith(sys.prefix) for path in sys.path if path.endswith("-packages")), sys.path
with open("/proc/self/maps") as maps:
    paths = {line.split()[-1] for line in maps if ".so" in line}
herds = [path for path in paths if "_torch_2_" in path or "libherd" in path]
assert herds and all(path.startswith(sys.prefix) for path in herds), herds
assert any("/herd_torch.libs/libsodium-" in path for path in paths), paths
"""

# A torch that the wheel has no module for is refused by its version, with those that it serves.
REFUSED = """
import torch, torch.distributed as dist
served = ".".join(torch.__version__.split(".")[:2])
torch.__version__ = "2.99.0"
try:
    dist.init_process_group("herd", store=dist.HashStore(), rank=0, world_size=1)
except ImportError as error:
    text = str(error)
    assert f"herd_torch serves torch {served}, but this is torch 2.99.0" in text and "fix: " in text, text
else:
    raise AssertionError("accepted")
"""


# The package for numpy loads no torch.
NUMPY = """
import sys, herd, numpy
assert herd.__file__.startswith(sys.prefix), herd.__file__
comm = herd.create()
x = numpy.arange(5.0)
assert (comm.all_reduced(x) == comm.size * x).all() and "torch" not in sys.modules
print("rank", comm.rank, "of", comm.size)
"""

# Where there is no torch, the other package says so.
WITHOUT_TORCH = """
import importlib.util
assert importlib.util.find_spec("torch") is None
try:
    import herd_torch
except ImportError as error:
    assert "torch is not installed" in str(error) and "fix: pip install 'herd-torch[torch]', with torch 2." in str(error), error
else:
    raise AssertionError("accepted")
"""


def run(*command, **options):
    subprocess.run([str(part) for part in command], check=True, **options)


def build_wheel(folder, build):
    settings = [f"build-dir={folder}/build", *(f"cmake.define.HERD_BUILD={path}" for path in build)]
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder,
        *(part for setting in settings for part in ("--config-settings", setting)), SOURCE / "python")  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entries, metadata = (
            archive.read(next(name for name in names if name.endswith(f".dist-info/{file}"))).decode()
            for file in ("entry_points.txt", "METADATA")
        )
    for group in ("[torch.backends]", "[torch.distributed.backends]", "[console_scripts]"):
        assert group in entries, entries
    needs = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert [need for need in needs if "extra ==" not in need] == ["numpy"] and any("torch" in need for need in needs), needs
    written = {path.relative_to(SOURCE / "python").as_posix() for path in (SOURCE / "python").glob("herd*/*") if path.is_file()}
    assert written <= set(names), written - set(names)
    assert {"herd/bin/herd", "herd/share/herd/models/gpt2.toml"} <= set(names), names
    typed = {"herd/py.typed", "herd_torch/py.typed"}  # their annotations count for type checkers: they need no stubs
    assert typed <= written, typed - written
    libraries = {name.split("/")[1].split("-")[0] for name in names if name.startswith("herd_torch.libs/")}
    assert {"libsodium", "libssl", "libcrypto", "libhwloc"} <= libraries, libraries


def check_libraries(packages):
    """Everything that the wheel's libraries need is in the wheel, in torch, or the C and C++ runtimes."""
    places = {"herd_torch/*.so": "/../herd_torch.libs", "herd/*.so": "/../herd_torch.libs", "herd/bin/*": "/../../herd_torch.libs",
              "herd_torch.libs/*.so*": ""}  # fmt: skip
    for pattern, libraries in places.items():
        for path in packages.glob(pattern):
            assert patchelf("--print-rpath", path) == ["$ORIGIN" + libraries], path
            for name in patchelf("--print-needed", path):
                known = SYSTEM.fullmatch(name) or TORCH.fullmatch(name) or (packages / "herd_torch.libs" / name).exists()
                assert known, f"{path.name} needs {name}"


def installed_with(name, found=None):
    """Returns the installed package and all that pip installs with it, by name."""
    found = {} if found is None else found
    try:
        package = importlib.metadata.distribution(re.match(r"[\w.-]+", name)[0])
    except importlib.metadata.PackageNotFoundError:  # what another system needs
        return found
    if package.name not in found:
        found[package.name] = package
        for need in package.requires or []:
            if "extra ==" not in need:
                installed_with(need, found)
    return found


def fresh_environment(folder, wheel, *names):
    """Returns its Python and its folder of packages. It has the wheel, and the packages `names` with what they need."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                              check=True, capture_output=True, text=True).stdout.strip()  # fmt: skip
    packages = pathlib.Path(packages)
    found = {}
    for name in names:
        installed_with(name, found)
    for package in found.values():
        for name in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            (packages / name).symlink_to(package.locate_file(name))
    return python, packages


def check_without_torch(python, packages, **options):
    run(python, "-c", WITHOUT_TORCH, **options)
    run(python, SOURCE / "python" / "tests" / "numpy_collectives.py", **options)
    command = python.with_name("herd")  # the script of pip
    run(command, "doctor", "--no-measure", stdout=subprocess.DEVNULL, **options)
    ranks = subprocess.run([command, "run", "-n", "2", "--", python, "-c", NUMPY], check=True, capture_output=True, text=True, **options)
    assert "[1] rank 1 of 2" in ranks.stdout, ranks
    refused = subprocess.run([command, "train", packages / "herd/share/herd/models/gpt2.toml"], capture_output=True, text=True, **options)
    assert refused.returncode == 2 and "this build has no herd-trainer" in refused.stderr, refused


if __name__ == "__main__":
    if importlib.util.find_spec("scikit_build_core") is None:
        print("this Python has no scikit-build-core\n  fix: scripts/setup --tests")
        sys.exit(77)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        wheel = build_wheel(folder, sys.argv[1:])
        check_contents(wheel)
        python, packages = fresh_environment(folder / "environment", wheel, "torch", "numpy")
        check_libraries(packages)
        title, code = examples()[0]
        status = run_torchrun(title, code + CHECK, python, environment=environment)
        assert status == 0, f"{title}: {status}"
        for name in ("guide.py", "ranks.py"):
            shutil.copy(pathlib.Path(__file__).parent / name, folder)
        run(python, "guide.py", cwd=folder, env=environment | {"HERD_SOURCE_DIR": str(SOURCE)})
        run(python, "-c", REFUSED, cwd=folder, env=environment)
        run(python, "-c", NUMPY, cwd=folder, env=environment)
        check_without_torch(*fresh_environment(folder / "numpy", wheel, "numpy"), cwd=folder, env=environment)
