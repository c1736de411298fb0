"""Whole networks by DP-SGD, from scratch: what minutes of training give, with everything paid."""
