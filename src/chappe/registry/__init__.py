"""Who is in the cluster, and what it has agreed on."""
