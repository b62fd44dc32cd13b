"""Rooms that scale by partitions and replicas: proxy, broker, router, gateway."""
