"""What this machine allows, and the tests that need a GPU."""
import json
import os
import pathlib
import re

from context import gigabytes, probe
from programs import ROOT, CannotRun, Failed, first_error, run

GPU_TESTS = ("test_cuda_kernels", "test_cuda_engine")


def part_machine(c):
    kernel = pathlib.Path("/proc/version").read_text()
    sandbox = "gVisor" if "gVisor" in kernel else "Firecracker" if "-fc" in kernel else "unknown"
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    c.report.row("system", f"{os.uname().release} ({sandbox}), {os.cpu_count()} cores, {memory / 2**20:.0f} GiB")
    if not c.small:
        with c.attempt("driver"):
            lines = run(c.report, ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_mode,pcie.link.gen.max,"
                                   "pcie.link.width.max", "--format=csv,noheader"], 20).strip()
            c.report.row("driver", lines)
    with c.attempt("torch"):
        found = probe(c, "device", c.device, seconds=c.left(90))
        c.report.sample("device", found)
        said = [f"torch {found['torch']}, CUDA {found['cuda']}"]
        said += [f"NCCL {found['nccl']}, cuDNN {found['cudnn']}, {found['gpus']} GPU"] if "nccl" in found else []
        c.report.row("torch", ", ".join(said))
        if c.small:
            c.report.row("matmul", f"{found['matmul_flops'] / 1e9:.0f} GFLOP/s in fp32, 512 x 512 x 512")
        else:
            c.report.row("matmul", f"{found['matmul_flops'] / 1e12:.0f} TFLOP/s in bf16, 8192 x 8192 x 8192")
        c.report.row("copy within the device", gigabytes(found["copy_bytes_per_s"]) + ", read and written")
        if not c.small:
            c.report.row("pinned copies", f"{gigabytes(found['to_device_bytes_per_s'])} to the device, "
                         f"{gigabytes(found['to_host_bytes_per_s'])} to the host, {gigabytes(found['both_ways_bytes_per_s'])} both")
    with c.attempt("CUDA IPC"):
        if c.small:
            raise CannotRun("no GPU")
        works = probe(c, "ipc", seconds=c.left(70))["ipc"]
        c.report.row("CUDA IPC", "two processes share memory and an event" if works else "memory of the other process differs",
                     "works", works)
    with c.attempt("drive"):
        found = probe(c, "drive", str(c.work), str((16 if c.small else 1024) << 20), seconds=c.left(30))
        c.report.row("drive", f"writes {gigabytes(found['write_bytes_per_s'])}, reads {gigabytes(found['read_bytes_per_s'])}"
                     + ("" if found["direct"] else ", through the page cache"))
    with c.attempt("herd doctor"):
        if c.small:
            return
        output = run(c.report, [c.build.herd, "doctor"], c.left(40), c.build.environment, check=False)
        for line in output.splitlines():
            if re.match(r"\w+\s+(device|gpu|cuda|nccl|torch)", line, re.I):
                c.report.row("herd doctor", " ".join(line.split())[:120])


def part_kernels(c):
    for test in GPU_TESTS:
        program = c.build.tests / test
        with c.attempt(test):
            if c.small:
                raise CannotRun("no GPU")
            if not program.exists():
                raise CannotRun("not in this build")
            results = c.work / f"{test}.json"
            environment = {**c.build.environment, "OMP_NUM_THREADS": "4", "HERD_SOURCE_DIR": str(ROOT),
                           "HERD_BINARY_DIR": str(c.build.bin)}
            # Not every reason to end early leaves a result: the output stands in the log, and its last lines here.
            output = run(c.report, [program, f"--gtest_output=json:{results}"], c.left(60), environment, check=False)
            if not results.exists():
                raise Failed(f"ended without results: {first_error(output)}")
            for suite in json.loads(results.read_text())["testsuites"]:
                cases = suite["testsuite"]
                skipped = [case for case in cases if case.get("result") == "SKIPPED"]
                failed = [case["name"] for case in cases if case.get("failures")]
                ran = len(cases) - len(skipped)
                said = f"{ran - len(failed)} of {ran} pass" + (f", {len(skipped)} skipped" if skipped else "")
                said += ": not " + " ".join(failed)[:150] if failed else ""
                c.report.row(f"{test} {suite['name']}", said, "all", not failed if ran else None)


# What a run of these ranks adds to the run file.
