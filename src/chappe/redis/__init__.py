"""A Redis: one server, the master that Sentinels name, or a Cluster."""
