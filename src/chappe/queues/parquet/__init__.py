"""Copies of a broker's sealed segments as Parquet, made by a process of their own."""
