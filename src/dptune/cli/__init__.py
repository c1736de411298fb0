"""The command line: verbs over the public API."""
