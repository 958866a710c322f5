"""A PyTorch program without a word about its launcher, under herd run and mpirun; and what it reads under each of them.
srun's real run is two_hosts_slurm.

    python launchers.py
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import guide
import herd_torch
import torch.distributed as dist
from herd_torch._launchers import torchrun_variables

HERD_RUN = {
    "HERD_RANK": "5", "HERD_SIZE": "8", "HERD_LOCAL_RANK": "1", "HERD_LOCAL_SIZE": "4", "HERD_RENDEZVOUS": "host:1234",
    "HERD_JOB_ID": "herd-host:1234",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "1234",
}  # fmt: skip
SLURM = {
    "SLURM_STEP_ID": "0", "SLURM_PROCID": "6", "SLURM_NTASKS": "7", "SLURM_LOCALID": "0", "SLURM_NODEID": "3",
    "SLURM_NNODES": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_STEP_NODELIST": "cn[007-009,12]", "SLURM_JOB_ID": "1",
}  # fmt: skip

COMMANDS = {
    "herd run": [pathlib.Path(herd_torch.__file__).parents[2] / "herd", "run", "-n", "2", "--"],
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"],
}


def numbers_of(variables):
    return [variables[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")]


def the_variables_of_each_launcher():
    assert torchrun_variables({"PATH": "/bin"}) == {}
    herd_run, mpirun, srun = (torchrun_variables(given) for given in (HERD_RUN, OPEN_MPI, SLURM))
    assert numbers_of(herd_run) == ["5", "8", "1", "4", "host"], herd_run
    assert numbers_of(mpirun) == ["3", "4", "3", "4", "127.0.0.1"], mpirun
    assert numbers_of(srun) == ["6", "7", "0", "1", "cn007"], srun
    ports = {int(found["MASTER_PORT"]) for found in (herd_run, mpirun, srun)}
    assert len(ports) == 3 and all(20000 <= port < 30000 for port in ports), ports
    assert torchrun_variables(HERD_RUN | {"HERD_RANK": "0"})["MASTER_PORT"] == herd_run["MASTER_PORT"]

    hosts = OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "8"}
    assert "MASTER_ADDR" not in torchrun_variables(hosts), "mpirun does not tell where rank 0 runs"
    assert torchrun_variables(hosts | {"HERD_RENDEZVOUS": "[::1]:29400"})["MASTER_ADDR"] == "::1"
    assert torchrun_variables({**SLURM, **OPEN_MPI, **HERD_RUN}) == herd_run, "the inner launcher counts"
    assert torchrun_variables({**SLURM, "SLURM_STEP_ID": ""}) == {}, "a batch script is no step"


def what_is_missing_is_named():
    half = {name: value for name, value in HERD_RUN.items() if name != "HERD_JOB_ID"}
    tasks = SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
    for given, words in ((half, "'HERD_JOB_ID' is not"), (tasks, 'SLURM_STEP_TASKS_PER_NODE="2(x3)" does not state')):
        os.environ.update(given)
        try:
            dist.init_process_group("herd")
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError("accepted")
        for name in given:
            del os.environ[name]


def a_program_runs_under(launcher):
    title, code = guide.examples("DDP")[0]
    ended = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\n"
    code = f"import herd_torch\n{code}\n{ended}"
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "program.py").write_text(code)
        ran = subprocess.run([*COMMANDS[launcher], sys.executable, "program.py"], cwd=folder, timeout=120, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert ran.returncode == 0 and all(f"rank {rank} of 2" in ran.stdout for rank in (0, 1)), (launcher, title, ran.stdout)


if __name__ == "__main__":
    the_variables_of_each_launcher()
    what_is_missing_is_named()
    for launcher in COMMANDS:
        if shutil.which(COMMANDS[launcher][0]) is None:
            print(f"{launcher}: not here", flush=True)
            continue
        a_program_runs_under(launcher)
        print(f"{launcher}: passed", flush=True)
