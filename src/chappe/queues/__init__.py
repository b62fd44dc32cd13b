"""Queues that forget nothing they said ok to: lanes, groups, retries, delays, dead letters."""
