"""Engines: they clip and sum rows, add the noise a plan names, and never see the ledger."""
