"""Copies of brokers' journals on other nodes, and who is master of each."""
