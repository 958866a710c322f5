"""PyTorch over herd: the process group backend "herd".

    import torch.distributed as dist
    dist.init_process_group("herd")        # DDP, FSDP2, DTensor and all of torch.distributed as ever

Tensors may lie on the CPU or on GPUs, and on another device where herd has a driver for it ("cpu:herd,NAME:herd").
PyTorch finds the backend by the entry point that the wheel installs; `import herd_torch` registers it, too. The guide
is docs/guide/pytorch.md.
"""

import atexit
import importlib
import pathlib

from . import _launchers

__all__ = ["register", "served_versions"]


def served_versions() -> list[str]:
    """Returns the minors of torch that this package has a module for, such as "2.13"."""
    names = {path.name.split(".")[0] for path in pathlib.Path(__file__).parent.glob("_torch_*")}
    minors = (name.removeprefix("_torch_").replace("_", ".") for name in names)
    return sorted(minors, key=lambda minor: [int(number) for number in minor.split(".")])


try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    minors = ", ".join(served_versions())
    raise ImportError(
        "herd_torch is PyTorch over herd, and torch is not installed; programs of numpy alone import herd\n  fix: "
        + (f"pip install 'herd-torch[torch]', with torch {minors}" if minors else "pip install torch, then pip install ./python again")
    ) from None


def _module():
    minor = ".".join(torch.__version__.split(".")[:2])
    if minor not in served_versions():
        raise ImportError(
            f"herd_torch serves torch {', '.join(served_versions()) or 'of no version'}, but this is torch "
            f"{torch.__version__}: c10d has no stable ABI\n"
            f"  fix: install a torch of that list, or build for this one: pip install --no-build-isolation ./python"
        )
    return importlib.import_module(f"herd_torch._torch_{minor.replace('.', '_')}")


_closes_at_exit = False


def _create(group, options):
    global _closes_at_exit
    module = _module()
    if not _closes_at_exit:
        _closes_at_exit = True
        atexit.register(module.close_all_groups)
    return module.create(group, options)


def register() -> None:
    """Registers the backend "herd" with torch.distributed. Importing this package has done it already.

    Loads no library: the first process group does. So `import torch` neither fails nor gets slower.
    """
    if dist.is_available() and not hasattr(dist.Backend, "HERD"):
        dist.Backend.register_backend("herd", _create, extended_api=True, devices=("cpu", "cuda"))
        _launchers.register()


register()
