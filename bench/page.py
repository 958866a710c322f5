#!/usr/bin/env python3
"""Writes the tables of docs/guide/benchmarks.md from the samples in bench/recorded.

    python bench/page.py               writes the page
    python bench/page.py --check       only compares: a line for each table that differs, and status 1 if any
    python bench/page.py --self-test

bench/recorded/NAME.jsonl stands behind the part of the page between `<!-- table NAME -->` and `<!-- end of NAME -->`. Its
first line says of what kind the samples are (a function of bench/tables.py), on which machine, on which day, of which
commit and by which command they were taken; null where nobody knows any more. The other lines are the samples, as the
bench script of this kind wrote them with --record NAME. Where `recorded` is "from the page", samples are lost: then each
line is one row of the table as the page had it, and `columns` names them. `<!-- not recorded: NAME -->` stands where
the first --record NAME puts a table.
"""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tables  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE, RECORDED = "docs/guide/benchmarks.md", "bench/recorded"
PART = re.compile(r"<!-- table ([\w.]+) -->\n(.*?)<!-- end of \1 -->", re.S)
HEAD = ("kind", "machine", "date", "commit", "command", "recorded")


def load(root, name):
    lines = (root / RECORDED / f"{name}.jsonl").read_text().splitlines()
    return json.loads(lines[0]), [json.loads(line) for line in lines[1:]]


def recorded(name):
    """The samples that --record NAME has kept so far; none where there are only rows from the page."""
    if not (ROOT / RECORDED / f"{name}.jsonl").exists():
        return []
    head, samples = load(ROOT, name)
    return samples if head["recorded"] != "from the page" else []


def part_of(head, samples):
    """The text of the page between its two marks."""
    if head["recorded"] == "from the page":
        columns, rows = head["columns"], [row["row"] for row in samples]
    else:
        columns, rows = getattr(tables, head["kind"])(samples)
    about = ", ".join(filter(None, (head["date"], head["machine"])))
    return (f"{about}:\n\n" if about else "") + tables.markdown(columns, rows) + "\n"


def findings(root):
    page = (root / PAGE).read_text()
    parts = dict(PART.findall(page))
    names = {path.stem for path in (root / RECORDED).glob("*.jsonl")}
    found = [f"{RECORDED}/{name}.jsonl is not in the tree" for name in sorted(parts.keys() - names)]
    found += [f"{PAGE} has no table {name}" for name in sorted(names - parts.keys())]
    for name in sorted(names & parts.keys()):
        head, samples = load(root, name)
        if tuple(key for key in head if key != "columns") != HEAD or not samples:
            found.append(f"{RECORDED}/{name}.jsonl: its first line has not {', '.join(HEAD)}, or no samples follow")
        elif part_of(head, samples) != parts[name]:
            found.append(f"{PAGE}: the table {name} is not that of its samples; fix: python bench/page.py")
    return found + [f"{PAGE}: the table \"{line[:60]}\" stands outside of the marks" for line in unmarked(page)]


def unmarked(page):
    """First rows of tables with figures in three cells or more that no samples stand behind."""
    rows = re.findall(r"^\|(?:-+\|)+\n(\|.*)$", PART.sub("", page), re.M)
    return [row for row in rows if len(re.findall(r"\| [\d.]+[^|]*(?=\|)", row)) >= 2]


def write(root):
    page = (root / PAGE).read_text()
    text = PART.sub(lambda part: f"<!-- table {part.group(1)} -->\n{part_of(*load(root, part.group(1)))}"
                                 f"<!-- end of {part.group(1)} -->", page)
    (root / PAGE).write_text(text)


def machine():
    name = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{name.group(1) if name else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"


def record(name, kind, samples):
    """Keeps the samples of a bench script as those of the table NAME, and writes the page."""
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    clip = f"CLIP={os.environ['CLIP']} " if "CLIP" in os.environ else ""
    head = {"kind": kind, "machine": machine(), "date": str(datetime.date.today()), "commit": commit.stdout.strip() or None,
            "command": clip + "python " + " ".join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]),
            "recorded": "by the command"}
    lines = [json.dumps(line) for line in (head, *samples)]
    (ROOT / RECORDED / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    page = (ROOT / PAGE).read_text()
    marks = f"<!-- table {name} -->\n<!-- end of {name} -->"
    (ROOT / PAGE).write_text(page.replace(f"<!-- not recorded: {name} -->", marks))
    write(ROOT)


def self_test():
    """Every rule, broken once, is found; a page of its samples has no finding, and writing it makes one."""
    head = dict.fromkeys(HEAD) | {"kind": "predictions", "date": "2026-01-01", "recorded": "by the command"}
    samples = [{"contender": "alone", "ms": [10, 30, 20], "predicted_ms": 25}]
    right = "2026-01-01:\n\n|  | runs | of predicted |\n|---|---|---|\n| alone | 1 | 80% (80% to 80%) |\n"
    cell = {**head, "recorded": "from the page", "columns": ["a"]}

    def page(text):
        return f"<!-- table t -->\n{text}<!-- end of t -->"
    cases = [
        (page(right), head, samples, None),
        (page("2026-01-01:\n\n| a |\n|---|\n| 7 ms |\n"), cell, [{"row": ["7 ms"]}], None),
        (page(right.replace("80% (", "81% (")), head, samples, "the table t is not that of its samples"),
        (page(right), head, [{**samples[0], "predicted_ms": 20}], "the table t is not that of its samples"),
        (page(right), {"kind": "predictions"}, samples, "its first line has not kind, machine"),
        ("", head, samples, "has no table t"),
        (page(right) + "<!-- table u -->\n<!-- end of u -->", head, samples, "u.jsonl is not in the tree"),
        (page(right) + "\n| a | b | c |\n|---|---|---|\n| x | 1 ms | 2 |\n", head, samples, "stands outside of the marks"),
    ]
    for text, head, lines, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / RECORDED).mkdir(parents=True)
            (root / PAGE).parent.mkdir(parents=True)
            (root / PAGE).write_text(text)
            (root / RECORDED / "t.jsonl").write_text("\n".join(map(json.dumps, (head, *lines))) + "\n")
            got = findings(root)
            if got if expected is None else not any(expected in line for line in got):
                sys.exit(f"page: self-test: {text!r}: expected {expected!r}, found {got}")
            if expected and "of its samples" in expected:
                write(root)
                if findings(root):
                    sys.exit(f"page: self-test: written anew, {text!r} still has {findings(root)}")
    print(f"page: {len(cases)} cases of the self-test pass")


if __name__ == "__main__":
    if "--self-test" in sys.argv[1:]:
        self_test()
    elif "--check" in sys.argv[1:]:
        lines = findings(ROOT)
        for line in lines:
            print(f"page: {line}")
        sys.exit(1 if lines else 0)
    else:
        write(ROOT)
