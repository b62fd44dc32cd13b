"""Many devices in one process, to try out and to measure what pushes to them."""
