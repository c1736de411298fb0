"""The version, where both the build and the command line find it."""

__version__ = "0.2.0.dev0"
