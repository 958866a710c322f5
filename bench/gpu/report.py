"""What scripts/gpu_check found: rows of one table, and samples."""
import json
import pathlib
import threading
import time


class Report:
    """Rows, kept in a file as soon as they are known."""

    def __init__(self, folder, about):
        self.folder, self.about, self.rows, self.samples = pathlib.Path(folder), about, [], {}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_file = open(self.folder / "gpu_check.log", "w")
        self.lock = threading.Lock()
        self.begun = time.monotonic()
        self.part = ""

    def row(self, what, figure, asked="", holds=None):
        """holds: True, False, or None for a figure of which nothing is asked."""
        with self.lock:
            self.rows.append({"part": self.part, "what": what, "figure": figure, "asked": asked, "holds": holds,
                              "at_s": round(time.monotonic() - self.begun, 1)})
            print(f"[{self.rows[-1]['at_s']:6.1f} s] {self.part}: {what}: {figure}"
                  + {True: "", None: "", False: f"   NOT {asked}"}[holds], flush=True)
            self.save()

    def not_run(self, what, why):
        self.row(what, f"not run: {why}")

    def sample(self, name, value):
        with self.lock:
            self.samples[name] = value
            self.save()

    def save(self):
        partial = self.folder / "gpu_check.json.partial"
        partial.write_text(json.dumps({**self.about, "rows": self.rows, "samples": self.samples}, indent=1) + "\n")
        partial.replace(self.folder / "gpu_check.json")

    def log(self, text):
        with self.lock:
            self.log_file.write(text + "\n")
            self.log_file.flush()

    def table(self):
        return table(self.rows)


def table(rows):
    """Rows as a table in Markdown."""
    cells = [("part", "what", "figure", "asked", "holds")]
    cells += [(r["part"], r["what"], str(r["figure"]), r["asked"], {True: "yes", False: "NO", None: ""}[r["holds"]])
              for r in rows]
    widths = [min(70, max(len(row[i]) for row in cells)) for i in range(5)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
