"""What people see of a benchmark."""

from collections.abc import Mapping, Sequence
from typing import Any

from dptune.cli.screen import facts_table, out, plain_table
from dptune.rounding import cost, probability


def bench_compare(table: Sequence[dict[str, Any]], folder: str) -> None:
    """One block for every task and budget."""
    blocks = dict.fromkeys((row["task"], row["epsilon"]) for row in table)
    for task, epsilon in blocks:
        rows = [row for row in table if (row["task"], row["epsilon"]) == (task, epsilon)]
        runs = rows[0]["repeats"]
        drawn = plain_table(f"{task}: epsilon {epsilon:g} at delta {probability(rows[0]['delta'])}")
        drawn.add_column("method")
        for name in ("accuracy", "spread", "RERR", "below oracle", "spent", "compute", "wall"):
            drawn.add_column(name, justify="right")
        for row in rows:
            spent = row["spent_epsilon"]
            drawn.add_row(
                row["method"],
                f"{row['mean']:.2f} ± {row['error']:.2f}",
                f"{row['spread']:.2f}",
                "" if row["rerr"] is None else f"{row['rerr']:.1f}",
                "" if row["below_oracle"] is None else f"{row['below_oracle']:.2f}",
                "unpaid" if spent is None else cost(spent),
                _seconds(row["compute_seconds"]),
                _seconds(row["seconds"]),
            )
        out.print(drawn)
        out.print(f"percent of test rows right, mean ± standard error of {runs} repeats\n")
    out.print(f"tables in {folder}: compare.md, compare.csv, compare.json", highlight=False)


def bench_ledger(results: Mapping[str, Any]) -> None:
    table = plain_table("one reservation, and the verification of everything")
    for name in ("entries", "reserve", "times slower", "verify"):
        table.add_column(name, justify="right")
    for row in results["sizes"]:
        table.add_row(
            f"{row['entries']:,}",
            _seconds(row["reserve_seconds"]),
            f"{row['ratio']:.2f}",
            _seconds(row["verify_seconds"]),
        )
    out.print(table)
    study = results["study"]
    out.print(
        f"\na study of {study['trials']:,} trials: {_seconds(study['seconds'])}, of which "
        f"{_seconds(study['ledger_seconds'])} ({100 * study['share']:.1f} %) in the ledger, for "
        f"{study['entries']:,} entries",
        highlight=False,
    )


def bench_extract(results: Mapping[str, Any]) -> None:
    where = results["gpu"] or f"cpu, {results['threads']} threads"
    table = facts_table(
        f"features of {results['pictures']:,} pictures by {results['backbone']} on {where}"
    )
    table.add_row(
        "the network alone",
        f"{results['bare_per_second']:,.0f} pictures/s",
        f"{results['precision']}, {results['batch']} at once",
    )
    table.add_row(
        "the whole extraction",
        f"{results['extraction_per_second']:,.0f} pictures/s",
        _seconds(results["seconds"]),
    )
    table.add_row("the latter by the former", f"{100 * results['ratio']:.0f} %")
    out.print(table)


def bench_accounting(results: dict[str, Any]) -> None:
    calibration = results["full_batch_calibration"]
    table = plain_table("noise for epsilon 1, delta 1e-05, 100 full-batch steps")
    table.add_column("route")
    table.add_column("noise", justify="right")
    table.add_column("time", justify="right")
    table.add_column("times slower", justify="right")
    for row in calibration["routes"]:
        table.add_row(
            row["route"],
            f"{row['noise_multiplier']:.4f}",
            _seconds(row["seconds"]),
            f"{row['ratio']:,.0f}",
        )
    out.print(table)
    table = plain_table("price of sampled runs, and dp-accounting's PLD beside it")
    for name in ("rate", "noise", "steps", "mu", "epsilon", "time"):
        table.add_column(name, justify="right")
    for name in ("PLD epsilon", "PLD time", "times slower"):
        table.add_column(name, justify="right")
    for row in results["sampled_prices"]:
        table.add_row(
            f"{row['sampling_rate']:g}",
            f"{row['noise_multiplier']:g}",
            f"{row['steps']:,}",
            cost(row["mu"], 5),
            cost(row["epsilon"]),
            _seconds(row["seconds"]),
            cost(row["pld_epsilon"]),
            _seconds(row["pld_seconds"]),
            f"{row['ratio']:.1f}",
        )
    out.print(table)


def bench_speed(results: dict[str, Any]) -> None:
    if results["device"] == "cpu":
        _bench_speed_cpu(results)
    else:
        _bench_speed_gpu(results)


def _bench_speed_cpu(results: dict[str, Any]) -> None:
    at_once = results["trials"]
    table = plain_table(f"one step of one trial: {_shape(results['shape'])}")
    table.add_column("route")
    table.add_column("time", justify="right")
    table.add_column(f"times slower than {at_once} at once", justify="right")
    routes = [
        (f"dptune, {trials} at once", ms) for trials, ms in results["per_trial_step_ms"].items()
    ]
    routes += [(f"Opacus, {mode}", ms) for mode, ms in results["opacus_step_ms"].items()]
    unit = results["per_trial_step_ms"][str(at_once)]
    for route, ms in routes:
        table.add_row(route, _seconds(ms / 1e3), f"{ms / unit:.1f}")
    out.print(table)
    table = facts_table(f"all {at_once} trials together")
    for layout, ms in results["bare_products_ms"].items():
        table.add_row(f"bare products, {layout}", _seconds(ms / 1e3))
    table.add_row("dptune's step, in bare products", f"{results['vs_bare_products']:.2f}")
    table.add_row(
        "cores used by other programs",
        f"{results['cores_used_by_others']:.2f}",
        "ratios need a quiet machine",
    )
    if results["peak_extra_gib"] is not None:
        peak = f"{results['peak_extra_gib']:.2f} GiB"
        table.add_row("peak memory beside features", peak, _shape(results["memory_shape"]))
    out.print(table)


def _bench_speed_gpu(results: dict[str, Any]) -> None:
    table = facts_table(f"{results['gpu']}: {_shape(results['shape'])}, full batch")
    for trials, ms in results["step_ms"].items():
        share = 100 * results["bandwidth_fraction"][trials]
        step = f"one step, trials at once: {trials}"
        table.add_row(step, _seconds(ms / 1e3), f"{share:.0f} % of the bandwidth")
    table.add_row("the latter by the former", f"{results['twelve_vs_one']:.2f}")
    table.add_row("a whole study", _seconds(results["study_seconds"]))
    share = 100 * results["imagenet_matrix_fraction"]
    imagenet = _shape(results["imagenet_shape"])
    seconds = _seconds(results["imagenet_seconds"])
    table.add_row(imagenet, seconds, f"{share:.0f} % of the matrix rate")
    streamed = _seconds(results["imagenet_streamed_seconds"])
    table.add_row("the same, streamed from disk", streamed)
    table.add_row("memory bandwidth, measured", f"{results['bandwidth_gb_per_s']:,.0f} GB/s")
    table.add_row("matrix rate, measured", f"{results['matrix_tflop_per_s']:,.0f} TFLOP/s")
    peak = f"{results['peak_extra_gib']:.2f} GiB"
    table.add_row("peak memory beside the features, float32", peak)
    out.print(table)


def bench_modules(results: Mapping[str, Any]) -> None:
    """Steps of every network beside plain ones; what did not run, and why; the largest."""
    where = results["gpu"] or f"cpu, {results['threads']} threads"
    remarks = []
    for adapters in (False, True):
        trained = f"adapters of rank {results['rank']}" if adapters else "all weights"
        table = plain_table(f"one step, {trained}: {where}, {results['compute']}")
        table.add_column("network")
        for name in ("rows", "plain", "private", "slower", "pass", "GiB", "memory"):
            table.add_column(name, justify="right")
        for mode in ("ghost", "hooks"):
            table.add_column(mode, justify="right")
        for row in results["steps"]:
            if row["adapters"] is adapters:
                table.add_row(*_module_line(row))
                remarks += _module_remarks(row, trained)
        out.print(table)
        out.print()
    for text in (
        "slower: a private step in plain ones; pass: its pass over the rows alone",
        "memory: its peak in that of a plain step; ghost, hooks: Opacus's step in plain ones",
        *remarks,
    ):
        out.print(text)
    for row in results["largest"]:
        size = f"{row['parameters'] / 1e9:.1f} billion weights, {row['layers']} layers"
        out.print(
            f"largest that took a step, {row['training']}, {row['optimizer']}: {size} of "
            f"{row['width']:,}, {row['words']:,} words; ended by {row['ended_by']}"
        )


def _module_line(row: Mapping[str, Any]) -> list[str]:
    slower, peak = row["times_slower"], row["private"]["peak_gib"]
    return [
        f"{row['network']}, {row['shape']}",
        str(row["rows"]),
        *(
            "" if (s := row[who]["seconds"]) is None else _seconds(s)
            for who in ("plain", "private")
        ),
        _times(slower["private"]),
        _times(slower["gradients"]),
        "" if peak is None else f"{peak:.1f}",
        *map(_times, (row["times_memory"], slower["opacus_ghost"], slower["opacus_hooks"])),
    ]


def _module_remarks(row: Mapping[str, Any], trained: str) -> list[str]:
    """What failed or took fewer rows than the others."""
    remarks = []
    for who in ("plain", "private", "opacus_ghost", "opacus_hooks"):
        step = row[who]
        about = f"{row['network']}, {row['shape']}, {trained}: {who.replace('_', ' ')}"
        if step["fails"]:
            remarks.append(f"{about} does not run: {step['fails']}")
        elif step["rows"] < row["rows"]:
            remarks.append(f"{about} has memory for {step['rows']} rows; its time is that of a row")
    return remarks


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _shape(shape: dict[str, int]) -> str:
    return f"{shape['rows']:,} x {shape['columns']:,}, {shape['classes']:,} classes"


def _seconds(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
