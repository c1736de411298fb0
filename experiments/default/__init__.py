"""What the default of `tune` reaches on sets kept out of every choice, and beside other methods."""
