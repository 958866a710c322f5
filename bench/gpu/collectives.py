"""An all-reduce between two ranks on one GPU."""
import json

from context import gigabytes
from programs import CannotRun, run


def part_collectives(c):
    with c.attempt("all_reduce"):
        options = run(c.report, [c.build.herd, "bench", "--help"], 20, c.build.environment)
        if not c.small and "--device" not in options:
            raise CannotRun("this herd's bench has no --device")
        found = c.report.samples.get("device", {})
        # Bytes that two ranks on one GPU at least read and write per byte of the message: each reads both inputs and writes
        # one output, half of it each: 3 a message, and the other half is read and written again: 5. PCIe: a message down and up
        # for each rank, of which the directions overlap: 2.
        ways = [("", [])] if c.small else [("IPC", ["--engine", "ipc"]), ("staged", ["--engine", "staged"]), ("as chosen", [])]
        for name, more in ways:
            what = f"all_reduce of {'1' if c.small else '64'} MiB, 2 ranks" + (f", {name}" if name else "")
            with c.attempt(what):
                if more and more[0] not in options:
                    raise CannotRun(f"this herd's bench has no {more[0]}")
                device = [] if c.small else ["--device", "cuda"]
                output = run(c.report, [c.build.herd, "bench", "all_reduce", *device, *more, "--ranks", 2, "--bytes",
                                        "1MiB" if c.small else "64MiB", "--seconds", "0.1" if c.small else "2", "--json"],
                             c.left(40), c.build.environment)
                row = next(json.loads(line) for line in output.splitlines() if line.startswith("{"))
                c.report.sample(what, row)
                rate = row["bytes"] / (row["us_median"] / 1e6)
                said = f"{gigabytes(rate)}, {row['algorithm']}, {row.get('wrong', 0)} wrong"
                right = row.get("wrong", 0) == 0
                if name == "IPC" and "copy_bytes_per_s" in found:
                    share = rate * 5 / found["copy_bytes_per_s"]
                    c.report.row(what, f"{said}: moves {share:.0%} of the copy bound (5 bytes a byte)", ">= 50 %", right and share >= 0.5)
                elif name == "staged" and "to_host_bytes_per_s" in found:
                    share = rate * 2 / min(found["to_host_bytes_per_s"], found["to_device_bytes_per_s"])
                    c.report.row(what, f"{said}: {share:.0%} of PCIe (2 bytes each way a byte)", ">= 70 %", right and share >= 0.7)
                else:
                    c.report.row(what, said, "0 wrong", right)
