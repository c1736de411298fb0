"""Search methods: what to try next, from what was released."""
