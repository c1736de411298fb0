"""Benchmarks that measure dptune's speed and accuracy on this machine."""
