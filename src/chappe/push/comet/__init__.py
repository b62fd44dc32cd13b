"""The comet: long connections of devices, as a machine without sockets (P1, P3)."""
