"""The journal: an append-only sequence of checked batches in segment files."""
