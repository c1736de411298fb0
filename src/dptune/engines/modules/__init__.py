"""Private training of any PyTorch module."""
