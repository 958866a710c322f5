#!/usr/bin/env python3
"""Draws what compare.py measured: rate over message size, a panel per operation, a line per contender.

    python bench/collective_peers/plot.py bench/recorded/collective_peers.jsonl OUT.svg [--ranks 2]

Medians over all runs, wherever the cores were. Both axes are logarithmic.
"""
import argparse
import json
import math
import statistics

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("samples")
parser.add_argument("out")
parser.add_argument("--ranks", type=int, default=2)
args = parser.parse_args()

COLORS = {"herd": "#0b6e4f", "herd, ordinary": "#7fb69d", "gloo": "#c0392b", "open mpi": "#d68910"}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 340, 230, 46, 30, 12, 34

rates = {}
with open(args.samples) as f:
    next(f)  # what bench/page.py says of the samples
    for s in map(json.loads, f):
        if s["ranks"] == args.ranks and s["bytes"] > 0:
            rates.setdefault(s["op"], {}).setdefault(s["peer"], {}).setdefault(s["bytes"], []).append(s["algbw_GBps"])


def show(size):
    return f"{size >> 20} MiB" if size >= 2**20 else f"{size >> 10} KiB"


def panel(op, peers, x0, y0):
    sizes = sorted({size for points in peers.values() for size in points})
    values = [statistics.median(v) for points in peers.values() for v in points.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    span = max(1, math.log2(sizes[-1] / sizes[0]))

    def x(size):
        return x0 + LEFT + (WIDTH - LEFT - RIGHT) * math.log2(size / sizes[0]) / span

    def y(rate):
        return y0 + HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(rate) - low) / max(1, high - low)

    yield f'<text x="{x0 + LEFT}" y="{y0 + 18}" font-weight="bold">{op}, GB/s</text>'
    for exponent in range(low, high + 1):
        at = y(10**exponent)
        yield f'<line x1="{x0 + LEFT}" x2="{x0 + WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
        yield f'<text x="{x0 + LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{10.0**exponent:g}</text>'
    for size in sizes:
        yield f'<text x="{x(size):.1f}" y="{y0 + HEIGHT - 14}" text-anchor="middle">{show(size)}</text>'
    for peer, points in peers.items():
        line = [(x(size), y(statistics.median(v))) for size, v in sorted(points.items())]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in line)
        yield f'<polyline points="{path}" fill="none" stroke="{COLORS[peer]}" stroke-width="2"/>'
        yield from (f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{COLORS[peer]}"/>' for a, b in line)


columns = 2
rows = math.ceil(len(rates) / columns)
parts = []
for i, (op, peers) in enumerate(rates.items()):
    parts += panel(op, peers, WIDTH * (i % columns), HEIGHT * (i // columns))
for i, (peer, color) in enumerate(COLORS.items()):
    at = LEFT + 150 * i
    parts.append(f'<circle cx="{at}" cy="{HEIGHT * rows + 12}" r="4" fill="{color}"/>'
                 f'<text x="{at + 9}" y="{HEIGHT * rows + 16}">{peer}</text>')
with open(args.out, "w") as out:
    out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * columns}" height="{HEIGHT * rows + 30}" '
              f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
              + "\n".join(parts) + "</svg>\n")
