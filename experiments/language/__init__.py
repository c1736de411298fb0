"""Language models on public texts: fine-tuning and language modelling, with everything paid."""
