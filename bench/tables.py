"""The tables of docs/guide/benchmarks.md, each made of the samples that its bench script wrote.

A table is (columns, rows), all of them strings. One function for each kind of samples, by which a bench script prints its
table, too; bench/page.py writes it into the page.
"""
import statistics


def markdown(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("|" + "|".join(f" {cell} " if cell != "---" else cell for cell in line) + "|" for line in lines)


def show_bytes(size):
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"


def show_us(us, digits=2):
    return f"{us / 1e3:.2f} ms" if us >= 1000 else f"{us:.{digits}f} us"


def grouped(samples, *keys):
    """Lists of samples by the values of their keys, in the order of their first ones."""
    groups = {}
    for sample in samples:
        groups.setdefault(tuple(sample[key] for key in keys), []).append(sample)
    return groups


def place(ns):
    """Where ranks 0 and 1 ran, told by a cache line's round trip; "taken away": other programs ran on their cores."""
    if ns == 0:
        return "shared cores"
    return "one core" if ns < 75 else "one cache" if ns < 250 else "two caches" if ns < 2000 else "taken away"


def collective_peers(samples):
    """Medians of contenders that ran on cores equally far apart; in brackets how many times as fast herd is."""
    rows = []
    located = [{**sample, "place": place(sample["core_ns"])} for sample in samples]
    for (op, ranks, size, where), found in sorted(grouped(located, "op", "ranks", "bytes", "place").items()):
        by = {peer: same for (peer,), same in grouped(found, "peer").items()}
        if "herd" not in by or not by.keys() & {"gloo", "open mpi"}:
            continue
        us = {peer: statistics.median(sample["us_median"] for sample in same) for peer, same in by.items()}
        ordinary = "herd, ordinary"

        def cell(peer):
            if peer not in us:
                return ""
            ratios = [f"{us[peer] / us[own]:.2f}x" for own in ("herd", ordinary) if own in us]
            return f"{show_us(us[peer])} ({', '.join(ratios)})"
        share = 100 * statistics.median(sample["algbw_GBps"] / sample["bound_GBps"] for sample in by["herd"])
        rows.append([op, str(ranks), show_bytes(size), where,
                     "+".join(str(len(by.get(peer, []))) for peer in ("herd", ordinary, "gloo", "open mpi")),
                     show_us(us["herd"]), statistics.mode(sample["algorithm"] for sample in by["herd"]),
                     f"{share:.0f} %" if size >= 2**25 else "", show_us(us[ordinary]) if ordinary in us else "",
                     cell("gloo"), cell("open mpi")])
    return ["operation", "ranks", "bytes", "cores", "runs", "herd", "algorithm", "of the bound", "herd, ordinary", "gloo",
            "Open MPI"], rows


def two_hosts(samples):
    """Medians in us; in brackets how many times as fast herd is."""
    peers = list(dict.fromkeys(sample["peer"] for sample in samples if not sample.get("each")))
    rows = []
    for (size,), same in grouped(samples, "bytes").items():
        us = {sample["peer"]: sample["us_median"] for sample in same}
        rows.append([str(size), *("-" if peer not in us else f"{us[peer]:.1f}" if peer == "herd" else
                                  f"{us[peer]:.1f} ({us[peer] / us['herd']:.2f})" for peer in peers)])
    return ["bytes", *peers], rows


def two_hosts_train(samples):
    """The median step of each layout, beside the first one's."""
    rows, first = [], None
    for sample in samples:
        ms = statistics.median(sample["ms"])
        first = first or ms
        hidden = f"{100 * sample['hidden']:.0f} %" if sample["hidden"] is not None else ""
        predicted = sample["predicted_ms"]  # None: by another program
        rows.append([sample["layout"], str(len(sample["ms"])), f"{ms:.0f}", f"{predicted:.0f}" if predicted else "",
                     f"{100 * ms / predicted:.0f}" if predicted else "", f"{ms / first:.2f}", hidden])
    return ["layout", "steps", "median ms", "predicted ms", "% of predicted", "beside the first", "hidden"], rows


def two_hosts_dispatch(samples):
    """Medians of a dispatch in which each row goes straight, and of one in which each token goes once to a host."""
    rows = []
    for sample in samples:
        straight, once = statistics.median(sample["straight_us"]), statistics.median(sample["once_us"])
        rows.append([sample["rate"], str(sample["ranks"]), str(sample["tokens"]), str(sample["width"]),
                     f"{sample['top_k']} of {sample['experts']}", str(len(sample["once_us"])), f"{straight / 1e3:.2f}",
                     f"{once / 1e3:.2f}", f"{straight / once:.2f}"])
    return ["cable", "ranks a host", "tokens of a rank", "width", "experts of a token", "runs", "straight, ms",
            "once to a host, ms", "times as fast"], rows


WITHIN = 1.25  # of the choice over the fastest


def choices(samples):
    """(over the fastest, cells) of each request: the choice of most rounds beside the fastest algorithm."""
    asked = ("where", "op", "ranks", "memory", "bytes", "dtype", "redop", "root", "in_place")
    for same in grouped(samples, *asked).values():
        if not any(sample["chosen"] for sample in same):
            continue
        us = {name: statistics.median(sample["us_median"] for sample in runs)
              for (name,), runs in grouped(same, "algorithm").items()}
        chosen = statistics.mode(sample["algorithm"] for sample in same if sample["chosen"])
        runs = [sample for sample in same if sample["algorithm"] == chosen]
        predicted = statistics.median(sample["predicted_us"] for sample in runs)
        off = statistics.median(sample["predicted_us"] / sample["us_median"] - 1 for sample in runs)
        best = min(us, key=us.get)
        over = us[chosen] / us[best]
        first = same[0]
        yield over, [first["where"], first["op"], str(first["ranks"]), first["memory"], show_bytes(first["bytes"]), chosen,
                     show_us(predicted, 1), show_us(us[chosen], 1), f"{100 * off:+.0f}%", best,
                     f"{over:.2f}{'' if over <= WITHIN else ' *'}"]


def explain(samples):
    """The choice of each request beside the fastest algorithm; a star marks one of more than WITHIN."""
    return ["where", "operation", "ranks", "memory", "bytes", "algorithm", "predicted", "measured", "off", "fastest",
            "of best"], [cells for _, cells in choices(samples)]


def batches_of(sample):
    """Of `batch` sequences, in a step of all ranks together."""
    name = sample["contender"]
    if "pp " in name or "pp_" in name:
        return sample["micro_batches"]
    return 1 if name in ("one rank", "torch eager") or name.startswith(("tp", "torch tp")) else sample["ranks"]


def training_peers(samples):
    """The steps of each contender beside those of its floor, the first one of its sitting."""
    floor_of = {sitting: same[0] for (sitting,), same in grouped(samples, "sitting").items()}
    beside = [{**sample, "floor": floor_of[sample["sitting"]]["contender"]} for sample in samples]
    rows = []
    for (floor, name), of in grouped(beside, "floor", "contender").items():
        steps = [step for sample in of for step in sample["ms"]]
        floor_steps = [step for sample in of for step in floor_of[sample["sitting"]]["ms"]]
        median = statistics.median(map(statistics.mean, steps))
        over = [statistics.median(kind(step) / kind(other) for step, other in zip(steps, floor_steps))
                for kind in (statistics.mean, max)]
        predicted = [100 * statistics.median(map(statistics.mean, sample["ms"])) / sample["predicted_ms"] for sample in of
                     if "predicted_ms" in sample]
        tokens = batches_of(of[0]) * of[0]["batch"] * of[0]["context"]
        rows.append([name, floor, str(len(steps)), f"{median:.0f}", f"{min(map(statistics.mean, steps)):.0f}",
                     f"{1e3 * tokens / median:.0f}", f"{over[0]:.3f}", f"{over[1]:.3f}",
                     ", ".join(f"{share:.0f}" for share in predicted), f"{max(sample['pss_gib'] for sample in of):.2f}"])
    return [f"{samples[0]['ranks']} ranks", "beside", "steps", "median ms", "min ms", "tokens/s", "over it",
            "over its slower run", "% of predicted", "peak PSS GiB"], rows


def memory_table(samples):
    """Peaks of rank 0's device and median steps, beside what was predicted."""
    return ["ranks", "zero", "recompute", "predicted peak", "measured peak", "of it", "predicted step", "measured step",
            "of it"], [
        [str(row["ranks"]), str(row["zero"]), row["recompute"], f"{row['predicted_bytes'] / 2**20:.0f} MiB",
         f"{row['measured_bytes'] / 2**20:.0f} MiB", f"{100 * row['measured_bytes'] / row['predicted_bytes']:.1f} %",
         f"{row['predicted_ms'] / 1e3:.2f} s", f"{row['measured_ms'] / 1e3:.2f} s",
         f"{100 * row['measured_ms'] / row['predicted_ms']:.0f} %"] for row in samples]


def predictions(samples):
    """Of each contender's runs the median step over its prediction: the middle, and the smallest and largest."""
    rows = []
    for (contender,), runs in grouped(samples, "contender").items():
        shares = [statistics.median(run["ms"]) / run["predicted_ms"] for run in runs]
        rows.append([contender, str(len(shares)), f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"])
    return ["", "runs", "of predicted"], rows


def expert_balance(samples):
    """How evenly experts are loaded without a bias and with one, and what the run loses by it."""
    first = samples[0]
    return ["model.bias_balancing", "steps", "busiest expert over the mean", "loss", "beside the first"], [
        [f"{row['bias']:g}", str(row["steps"]), f"{row['imbalance']:.2f}", f"{row['loss']:.4f}",
         f"{100 * (row['loss'] / first['loss'] - 1):+.2f} %"] for row in samples]


def compression_losses(samples):
    """What each codec sends and loses, and how a run learns with it, beside the first."""
    first = samples[0]
    return ["codec", "steps", "fp32 bytes for one", "lost of the last gradient", "loss", "beside the first",
            "validation"], [
        [row["codec"], str(row["steps"]), f"{row['ratio']:.1f}" if row["ratio"] else "",
         f"{100 * row['error']:.1f} %" if row["error"] is not None else "", f"{row['loss']:.4f}",
         f"{100 * (row['loss'] / first['loss'] - 1):+.2f} %", f"{row['val_loss']:.4f}"] for row in samples]


def staleness(samples):
    """How stale weights were, and the loss and time of each bound, beside those of the first of its kind."""
    rows = []
    for (slow,), runs in grouped(samples, "slow").items():
        first = runs[0]
        for run in runs:
            bound = "none" if run["staleness"] < 0 else str(run["staleness"])
            reached = run["reached_s"]
            rows.append([slow, bound, str(run["most_stale"]), f"{run['loss']:.4f}",
                         f"{100 * (run['loss'] / first['loss'] - 1):+.2f} %",
                         f"{reached:.1f} s" if reached is not None else "not reached",
                         f"{reached / first['reached_s']:.2f}" if reached is not None else ""])
    return ["slow rank", "bound", "most stale", "loss", "beside 0", "time to that loss", "of it"], rows


def topologies(samples):
    columns = ["workers", "pattern", "rate", "MiB", "measured, s", "equation, s", "of it"]
    return columns, [[s["workers"], s["pattern"], s["rate"], s["mib"], f"{s['s']:.3f}", f"{s['equation_s']:.3f}",
                      f"{s['s'] / s['equation_s']:.2f}"] for s in samples]


def push_pull(samples):
    """One worker and one server of a host; large ones beside a copy of as many bytes by one core."""
    rows = []
    for s in samples:
        beside = f"{s['GBps'] / s['bound_GBps']:.2f}" if s["bound_GBps"] else ""
        rows.append([s["op"], show_bytes(int(s["bytes"])), show_us(s["us_min"]), show_us(s["us_median"]),
                     f"{s['GBps']:.2f}", f"{s['bound_GBps']:.2f}" if s["bound_GBps"] else "", beside])
    return ["call", "bytes", "least", "median", "GB/s", "a copy, GB/s", "of it"], rows


def server_rounds(samples):
    columns = ["workers", "hosts that only serve", "rate", "MiB", "round, s", "equation, s", "of it"]
    return columns, [[s["workers"], s["dedicated"], s["rate"], s["mib"], f"{s['s']:.3f}", f"{s['equation_s']:.3f}",
                      f"{s['s'] / s['equation_s']:.2f}"] for s in samples]


def weights_on_host(samples):
    """One a contender: ms of each step, predicted_ms of each round. The first contender is what the others are beside."""
    first = statistics.median(samples[0]["ms"])
    rows = []
    for sample in samples:
        ms, predicted = statistics.median(sample["ms"]), statistics.median(sample["predicted_ms"])
        rows.append([sample["contender"], f"{ms:.0f} ms", f"{predicted:.0f} ms", f"{ms / predicted:.2f}", f"{first / ms:.2f}"])
    return ["contender", "step", "predicted", "step over predicted", "times as fast"], rows


def zero_plus_plus(samples):
    """One a contender, number of tokens and round: ms of each step, the bytes of one. The first contender is what the others are beside."""
    rows, first = [], samples[0]["name"]
    found = {key: (statistics.median(ms for one in same for ms in one["ms"]), statistics.median(one["bytes"] for one in same))
             for key, same in grouped(samples, "tokens", "name").items()}
    for (tokens, name), (ms, sent) in found.items():
        base_ms, base_sent = found[tokens, first]
        rows.append([str(tokens), name, f"{ms:.0f} ms", f"{base_ms / ms:.2f}", f"{sent / 1e6:.0f} MB", f"{sent / base_sent:.3f}"])
    return ["tokens a rank", "contender", "step", "times as fast", "between hosts", f"of {first}"], rows


def raw_io(samples):
    """One a round: bytes a second and the processor's time of each contender, in both directions."""
    rows = []
    for way in ("write", "read"):
        rates = [f"{statistics.median(one[name][way] for one in samples) / 1e9:.2f}" for name in ("herd", "unregistered", "fio")]
        over = statistics.median(one["herd"][way] / one["fio"][way] for one in samples)
        cpu = [f"{statistics.median(one[name][f'{way}_cpu_ms_per_gb'] for one in samples):.0f}" for name in ("herd", "unregistered")]
        rows.append([way, *rates, f"{over:.2f}", *cpu])
    return ["", "herd GB/s", "unregistered GB/s", "fio GB/s", "herd over fio", "cpu ms a GB", "unregistered cpu ms a GB"], rows


def torch_all_reduce(samples):
    """The median of each backend, and in brackets its least time."""
    def cell(times):
        return f"{show_us(times['median_us'], 1)} ({show_us(times['least_us'], 1)})"
    return ["ranks", "bytes", "herd", "gloo", "gloo over herd"], [
        [str(line["ranks"]), show_bytes(line["bytes"]), cell(line["herd"]), cell(line["gloo"]), f"{line['gloo_over_herd']:.2f}"]
        for line in samples]


def numpy_all_reduce(samples):
    """The median over the rounds, and that of mpi4py's time over the contender's of the same round."""
    rows = []
    for (ranks, size), rounds in grouped(samples, "ranks", "bytes").items():
        for name in rounds[0]["s"]:
            ratio = statistics.median(sample["s"]["mpi4py"] / sample["s"][name] for sample in rounds)
            rows.append([name, str(ranks), show_bytes(size), str(len(rounds)),
                         show_us(1e6 * statistics.median(sample["s"][name] for sample in rounds)), f"{ratio:.2f}"])
    return ["", "ranks", "bytes", "rounds", "median", "mpi4py over it"], rows
