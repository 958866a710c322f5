"""Runs a function as the ranks of a job: forked processes that meet in a file store. Torch is imported once."""

import datetime
import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback

import warnings

warnings.simplefilter("ignore", FutureWarning)

import torch  # noqa: E402
import torch.distributed as dist

import herd_torch  # noqa: F401, registers the backend


def import_before_fork():
    """Imports here, once, what every rank would: torch.compile's packages and those for training, 3 s of CPU a rank."""
    import torch._dynamo
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp
    import torch.distributed.optim
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel  # noqa: F401

    try:  # torch.compile shows progress by it, where it is installed: without its monitor's thread
        import tqdm

        tqdm.tqdm.monitor_interval = 0
    except ImportError:
        pass
    torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(1))
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be lost in the ranks"


def _run_rank(body, rank, ranks, store, timeout, joined, backend, prepare):
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background ignores it
    torch.set_num_threads(1)
    torch.manual_seed(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    if prepare is not None:
        prepare()
    if not joined:
        return body(rank, ranks)
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=timeout)
    )
    body(rank, ranks)
    if dist.is_initialized():
        dist.destroy_process_group()


def fork(body, ranks, timeout=30.0, within=120.0, joined=True, backend="herd", prepare=None):
    """Runs body(rank, ranks) on each rank. Returns the exit statuses: negative where a signal ended the rank, None where
    it still ran after `within` seconds and was killed. `timeout` is that of the process group, in seconds; there is none unless `joined`.
    `prepare` is called in each rank before it joins."""
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        sys.stdout.flush()
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    _run_rank(body, rank, ranks, os.path.join(folder, "store"), timeout, joined, backend, prepare)
                    status = 0
                except SystemExit as exit:
                    status = exit.code or 0
                except BaseException:
                    print(f"rank {rank} of {ranks}:\n{traceback.format_exc()}", flush=True)
                finally:
                    sys.stdout.flush()
                    os._exit(status)
            pids.append(pid)
        statuses = [None] * ranks
        until = time.monotonic() + within
        while None in statuses and time.monotonic() < until:
            for rank, pid in enumerate(pids):
                if statuses[rank] is None:
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        statuses[rank] = os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        for rank, pid in enumerate(pids):
            if statuses[rank] is None:
                os.kill(pid, signal.SIGUSR1)  # where it hangs
                time.sleep(0.2)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return statuses


def run_checks(checks, sizes, only="", **options):
    """Runs check(rank, ranks) for each check in one job of each size. Returns true where all passed."""
    names = [name for name in checks if only in name]

    def body(rank, ranks):
        for name in names:
            began = time.process_time()
            try:
                checks[name](rank, ranks)
            except BaseException:
                print(f"{name} fails on rank {rank} of {ranks}:\n{traceback.format_exc()}", flush=True)
                raise SystemExit(1)
            if rank == 0:
                print(f"{name} on {ranks} ranks: {time.process_time() - began:.2f} s of CPU", flush=True)

    passed = True
    for ranks in sizes:
        statuses = fork(body, ranks, **options)
        if any(status != 0 for status in statuses):
            print(f"FAILED on {ranks} ranks: exit statuses {statuses}", flush=True)
            passed = False
    return passed
