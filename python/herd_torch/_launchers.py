"""Gives PyTorch's rendezvous env:// what torchrun would set, under the other launchers: herd run, Open MPI's mpirun, srun.

It reads only the variables of a launcher when a program without RANK and WORLD_SIZE calls init_process_group(), which
PyTorch alone refuses. herd/launch/environment.h has the same launchers, in the same order.
"""

import importlib
import os
import re
import urllib.parse
import zlib
from collections.abc import Mapping

_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def _meeting(host: str, job: str) -> dict[str, str]:
    """All ranks of the job derive the same port from its id, below the ports that systems give to connections."""
    return {"MASTER_ADDR": host, "MASTER_PORT": str(20000 + zlib.crc32(job.encode()) % 10000)}


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _first_host(nodes: str) -> str:
    """Returns "n03" for "n[03-07,9],m1", a list of nodes as Slurm writes it."""
    name, first = re.match(r"([^\[,]*)(?:\[(\w+))?", nodes).groups("")
    return name + first


def _tasks_of_node(text: str, node: int) -> str:
    """Returns "2" for node 1 of "2(x3),1", the tasks of each node as Slurm writes them."""
    tasks = [count for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text) for _ in range(int(times or 1))]
    if node >= len(tasks):
        raise ValueError(f'SLURM_STEP_TASKS_PER_NODE="{text}" does not state the tasks of node {node} (SLURM_NODEID)')
    return tasks[node]


def torchrun_variables(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of torchrun for a process with the variables `given`; {} where no launcher started it."""
    if given.get("HERD_RANK"):
        numbers = [given[f"HERD_{name}"] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
        meeting = _meeting(_host_of(given["HERD_RENDEZVOUS"]), given["HERD_JOB_ID"])
    elif given.get("OMPI_COMM_WORLD_RANK"):
        numbers = [given[f"OMPI_COMM_WORLD_{name}"] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
        address = given.get("HERD_RENDEZVOUS") or ("" if numbers[1] != numbers[3] else "127.0.0.1:")
        meeting = _meeting(_host_of(address), given.get("PMIX_NAMESPACE") or given.get("OMPI_MCA_ess_base_jobid", "")) if address else {}
    elif given.get("SLURM_STEP_ID") and given.get("SLURM_PROCID"):
        tasks = given.get("SLURM_STEP_TASKS_PER_NODE") or given["SLURM_TASKS_PER_NODE"]
        numbers = [given[f"SLURM_{name}"] for name in ("PROCID", "NTASKS", "LOCALID")]
        numbers.append(_tasks_of_node(tasks, int(given["SLURM_NODEID"])))
        nodes = given.get("SLURM_STEP_NODELIST") or given["SLURM_NODELIST"]
        meeting = _meeting(_first_host(nodes), given.get("SLURM_JOB_ID", "") + "." + given["SLURM_STEP_ID"])
    else:
        return {}
    return dict(zip(_NUMBERS, numbers)) | meeting


def register() -> None:
    """Lets env:// serve the other launchers. A variable that is set stays."""
    handlers = getattr(importlib.import_module("torch.distributed.rendezvous"), "_rendezvous_handlers", {})
    plain = handlers.get("env")

    def handler(url, *arguments, **options):
        given = urllib.parse.parse_qs(urllib.parse.urlparse(url).query)  # rank and world_size that the program states
        if not given and not os.environ.get("RANK") and not os.environ.get("WORLD_SIZE"):
            try:
                found = torchrun_variables(os.environ)
            except KeyError as missing:
                raise ValueError(
                    f"the variables of a launcher are set, but {missing} is not\n"
                    "  fix: start every rank with herd run, torchrun, mpirun or srun, or unset those that are set"
                ) from None
            for name, value in found.items():
                os.environ[name] = os.environ.get(name) or value
        return plain(url, *arguments, **options)

    if plain is not None:
        handlers["env"] = handler
