"""What many tests share: a ledger to pay from, and a PostgreSQL server of our own."""

import multiprocessing
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, settings

from dptune import Budget, Ledger
from dptune.engines.randomness import seed_torch
from support.ledgers import new_ledger
from support.noise import repeated_noise

if TYPE_CHECKING:
    from support.spy import Spied

# The same examples every time, however slow the machine; --hypothesis-profile=hunt for fresh ones.
settings.register_profile(
    "dptune",
    deadline=None,
    print_blob=True,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("hunt", settings.get_profile("dptune"), derandomize=False)
settings.load_profile("dptune")

# Torch's threads and pytest's workers would fight for the same two cores, and so would programs
# that tests start.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# What is printed to a pipe is looked at as it is without anybody's wishes for colours and width.
for _wish in (
    *("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "CLICOLOR", "CLICOLOR_FORCE"),
    *("TTY_COMPATIBLE", "GITHUB_ACTIONS"),
):
    os.environ.pop(_wish, None)

# A study waits for the disk a hundred times, which in memory takes no time. That is safe here: what
# dies in tests are processes, never the machine.
_MEMORY, _ENOUGH = Path("/dev/shm"), 2**31
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What processes that are killed leave among temporary files goes with ours."""
    with pytest.MonkeyPatch.context() as patch:
        place = str(tmp_path_factory.mktemp("temporary"))
        patch.setenv("TMPDIR", place)
        patch.setattr(tempfile, "tempdir", place)
        yield


@pytest.fixture(autouse=True)
def same_first_weights() -> None:
    """Whatever tests ran before in this process, torch's own generator, which modules draw their
    first weights from, begins anew. Noise is drawn from others."""
    seed_torch(0)


@pytest.fixture
def warm_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of an executor fork from one that has torch imported, which takes longer than their
    runs do. What they are given still comes in bytes, and they die as alone as others."""
    warm = multiprocessing.get_context("forkserver")
    warm.set_forkserver_preload(
        ["pytest", "dptune.engines.modules.torch_module", "dptune.study.study"]
    )
    monkeypatch.setattr("dptune.engines.executors.get_context", lambda _: warm)


@pytest.fixture
def same_noise() -> Iterator[None]:
    with repeated_noise():
        yield


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> "Spied":
    from support.spy import spy_on_engine  # which needs torch

    return spy_on_engine(monkeypatch)


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Call the command line; returns exit code, output and errors."""
    from dptune.cli import app as cli

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dptune", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        captured = capsys.readouterr()
        return int(exit.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def budget() -> Budget:
    return Budget(1.0, 1e-5)


@pytest.fixture
def ledger(tmp_path: Path, budget: Budget) -> Ledger:
    """A fresh SQLite ledger with one declared version of its data set."""
    return new_ledger(str(tmp_path / "ledger.db"), budget)


def _find(program: str) -> str | None:
    """Debian keeps the server's programs off the path."""
    found = shutil.which(program)
    candidates = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), reverse=True)
    return found or (str(candidates[0]) if candidates else None)


def _cannot_start(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"CI must test against a real PostgreSQL server: {why}")
    pytest.skip(f"no PostgreSQL server can be started here: {why}")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a throw-away server that listens on a socket in a folder of its own."""
    programs = {name: _find(name) for name in ("initdb", "pg_ctl")}
    if None in programs.values():
        _cannot_start("initdb and pg_ctl are not installed (Debian: apt-get install postgresql)")
    # The server refuses to run as root.
    user = None
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("postgres").pw_name
        except KeyError:
            _cannot_start("we are root and there is no user 'postgres' to run it as")
    with tempfile.TemporaryDirectory(prefix="dptune-pg-", dir="/tmp") as folder:
        if user:
            shutil.chown(folder, user)
        data = f"{folder}/data"

        def run(*command: str) -> None:
            done = subprocess.run(
                command, user=user, cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                _cannot_start(f"{command[0]} said: {done.stderr or done.stdout}")

        run(str(programs["initdb"]), "-D", data, "-U", "dptune", "-A", "trust", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c max_connections=64 -c fsync=off"
        log = f"{folder}/log"
        run(str(programs["pg_ctl"]), "-D", data, "-o", options, "-l", log, "-w", "start")
        try:
            yield f"postgresql://dptune@/postgres?host={folder}"
        finally:
            run(str(programs["pg_ctl"]), "-D", data, "-m", "immediate", "-w", "stop")


@pytest.fixture
def postgres_address(postgres_server: str, request: pytest.FixtureRequest) -> str:
    """URL of an empty schema: one ledger each."""
    import sqlalchemy as sa

    schema = f"t{abs(hash(request.node.nodeid))}"
    engine = sa.create_engine(
        sa.make_url(postgres_server).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool
    )
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    return f"{postgres_server}&options=-csearch_path%3D{schema}"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Somewhere a new ledger can be made, in each kind of store."""
    if request.param == "sqlite":
        return str(tmp_path / "shared.db")
    return str(request.getfixturevalue("postgres_address"))
