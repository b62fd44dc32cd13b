"""Benchmarks: Chappe beside NATS, Redis and Mosquitto, the same work in one run, as ratios."""
