"""The shape of the speed report, on tiny tables; no claim about speed."""

import json
import sys
from typing import Any

import pytest
import torch

from dptune.bench import speed
from dptune.cli import app as cli
from dptune.errors import InvalidInput, MissingExtra


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "NARROW", speed.Shape(300, 8, 3))
    monkeypatch.setattr(speed, "WIDE", speed.Shape(200, 16, 3))
    monkeypatch.setattr(speed, "IMAGENET", speed.Shape(500, 16, 5))
    monkeypatch.setattr(speed, "OPACUS_REPEATS", 1)
    monkeypatch.setattr(speed, "COPIED_BYTES", 10_000)
    monkeypatch.setattr(speed, "MATRIX_SIDE", 64)


def bench(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str
) -> Any:
    """Exit code, output and errors of `dptune bench speed`."""
    monkeypatch.setattr(sys, "argv", ["dptune", "bench", "speed", *options])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    captured = capsys.readouterr()
    return exit.value.code, captured.out, captured.err


@pytest.mark.usefixtures("tiny")
def test_cpu_ratios_follow_from_the_times_beside_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = bench(capsys, monkeypatch, "--json")
    assert code == 0, err
    measured = json.loads(out)
    ours = measured["per_trial_step_ms"]
    assert list(ours) == ["1", "7", "50"]
    for mode, theirs in measured["opacus_step_ms"].items():
        assert measured[f"vs_opacus_{mode}"] == pytest.approx(theirs / ours["7"])
    bare = min(measured["bare_products_ms"].values())
    assert measured["vs_bare_products"] == pytest.approx(7 * ours["7"] / bare)
    assert 0 <= measured["peak_extra_gib"] < 1
    assert measured["cores_used_by_others"] >= 0


@pytest.mark.usefixtures("tiny")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_report_is_complete() -> None:
    measured = speed.measure(lambda text: None, "cuda")
    assert measured["twelve_vs_one"] == pytest.approx(
        measured["step_ms"]["12"] / measured["step_ms"]["1"]
    )
    for name in ("study_seconds", "imagenet_seconds", "imagenet_matrix_fraction"):
        assert measured[name] > 0


CPU_RESULTS = {
    "device": "cpu",
    "shape": {"rows": 50_000, "columns": 256, "classes": 10},
    "trials": 7,
    "cores_used_by_others": 0.03,
    "vs_bare_products": 2.25,
    "per_trial_step_ms": {"1": 20.0, "7": 4.0, "50": 3.0},
    "opacus_step_ms": {"ghost": 80.0, "hooks": 400.0},
    "bare_products_ms": {"rows contiguous": 12.0, "classes contiguous": 13.0},
    "memory_shape": {"rows": 50_000, "columns": 1_280, "classes": 10},
    "peak_extra_gib": None,
}
GPU_RESULTS = {
    "device": "cuda",
    "gpu": "NVIDIA H200",
    "shape": {"rows": 50_000, "columns": 1_280, "classes": 10},
    "step_ms": {"1": 0.5, "12": 0.55},
    "twelve_vs_one": 1.1,
    "study_seconds": 0.1,
    "imagenet_shape": {"rows": 1_281_167, "columns": 1_024, "classes": 1_000},
    "imagenet_seconds": 7.5,
    "imagenet_streamed_seconds": 57.0,
    "bandwidth_gb_per_s": 4_000.0,
    "bandwidth_fraction": {"1": 0.125, "12": 0.115},
    "matrix_tflop_per_s": 700.0,
    "imagenet_matrix_fraction": 0.14,
    "peak_extra_gib": 0.25,
}


@pytest.mark.parametrize(
    ("results", "shown"),
    [
        (CPU_RESULTS, ("50,000 x 256", "Opacus, ghost", "20.0", "100.0", "2.25")),
        (GPU_RESULTS, ("NVIDIA H200", "1,281,167 x 1,024", "7.5 s", "14 %", "4,000 GB/s")),
    ],
    ids=["cpu", "cuda"],
)
def test_tables_show_the_figures(
    results: dict[str, Any],
    shown: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speed, "measure", lambda report, device: results)
    code, out, _ = bench(capsys, monkeypatch)
    assert code == 0
    for text in shown:
        assert text in out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = bench(capsys, monkeypatch, "--device", "cuda")
    assert code == 2 and "PyTorch finds none" in err


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(InvalidInput, match="one of cpu, cuda"):
        speed.measure(lambda text: None, "abacus")


@pytest.mark.usefixtures("tiny")
def test_without_opacus_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(MissingExtra, match=r"dptune\[bench\]"):
        speed.measure(lambda text: None)
