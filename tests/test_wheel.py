"""What users install, and what stays in the repository."""

from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_the_package_and_nothing_else() -> None:
    from hatchling.builders.wheel import WheelBuilder

    builder = WheelBuilder(str(ROOT))
    packed = {file.distribution_path for file in builder.recurse_included_files()}
    package = ROOT / "src"
    written = {
        file.relative_to(package).as_posix()
        for file in (package / "dptune").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert packed == written
    assert "dptune/py.typed" in packed and "dptune/data/demo/cifar10_resnet20.npz" in packed
