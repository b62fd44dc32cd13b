"""Nodes joined: links between them, routes, homes."""
