"""Which modules a fresh process has loaded after some code, or after a command."""

import subprocess
import sys


def loaded_by(code: str) -> set[str]:
    code = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def loaded_by_command(*arguments: str) -> set[str]:
    return loaded_by(
        f"""
from dptune.cli.app import main
sys.argv = ["dptune", *{arguments!r}]
try:
    main()
except SystemExit as exit:
    assert not exit.code"""
    )
