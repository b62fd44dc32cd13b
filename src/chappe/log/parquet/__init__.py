"""Copies of a journal's sealed segments as Parquet: what they are of is said elsewhere."""
