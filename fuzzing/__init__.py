"""Throws damaged input at everything that reads what strangers send.

`python -m fuzzing --seconds 60 --seed 1` runs every target for a while and prints each failing
input as hex, with the seed that finds it again.
"""
