"""`python -m dptune` is the command line."""

from dptune.cli.app import main

main()
