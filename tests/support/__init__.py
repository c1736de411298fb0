"""What tests share: made-up rows, studies, ledgers, noise, and those who try to break them."""
