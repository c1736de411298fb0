"""Where the best noise lies, and what the law of it says."""
