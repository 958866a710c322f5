"""Runs every Python example of docs/guide/pytorch.md on two ranks that meet as torchrun's do."""

import os
import pathlib
import re
import socket
import sys

from ranks import fork

SOURCE = pathlib.Path(os.environ.get("HERD_SOURCE_DIR", pathlib.Path(__file__).parents[2]))

if __name__ == "__main__":
    text = (SOURCE / "docs/guide/pytorch.md").read_text()
    examples = re.findall(r"^## ([^\n]*)\n```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 3, examples
    failed = False
    for title, code in examples:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
        statuses = fork(lambda rank, ranks: exec(compile(code, title, "exec"), {"__name__": "__main__"}), 2, joined=False)
        print(f"{title}: {statuses}", flush=True)
        failed |= statuses != [0, 0]
    sys.exit(failed)
