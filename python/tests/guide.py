"""Runs every Python example of docs/guide/pytorch.md on two ranks that meet as torchrun's do.

    python guide.py [--only TITLE] [--torchrun]     --torchrun: as programs in a folder of their own, started by torchrun
"""

import argparse
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get("HERD_SOURCE_DIR", pathlib.Path(__file__).parents[2]))


def examples(only=""):
    text = (SOURCE / "docs/guide/pytorch.md").read_text()
    found = re.findall(r"^## ([^\n]*)\n```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    words = [title.split(":")[0] for title, code in found]
    assert words == ["DDP", "FSDP2", "DTensor", "Pipelining", "DCP"], f"the guide's examples are those of {words}"
    return [(title, code) for title, code in found if only in title]


def run_forked(title, code):
    from ranks import fork

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))

    def rank_of_example(rank, ranks):
        os.chdir(folder)
        exec(compile(code, title, "exec"), {"__name__": "__main__"})

    with tempfile.TemporaryDirectory() as folder:
        return fork(rank_of_example, 2, joined=False)


def run_torchrun(title, code, python=sys.executable, ranks=2, environment=None):
    """Returns the exit status. Neither this file's folder nor herd's is where the program looks for packages."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "program.py").write_text(code)
        return subprocess.run(
            [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "program.py"],
            cwd=folder, env=environment, timeout=300,
        ).returncode  # fmt: skip


def run_examples(only="", run=run_forked):
    """Returns true where all passed."""
    passed = True
    for title, code in examples(only):
        status = run(title, code)
        print(f"{title}: {status}", flush=True)
        passed &= status in (0, [0, 0])
    return passed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--torchrun", action="store_true")
    given = parser.parse_args()
    if not given.torchrun:
        import ranks

        ranks.import_before_fork()
    sys.exit(0 if run_examples(given.only, run_torchrun if given.torchrun else run_forked) else 1)
