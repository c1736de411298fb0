"""Any PyTorch module, trained on clipped gradients of its rows."""
