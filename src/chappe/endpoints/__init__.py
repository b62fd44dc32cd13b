"""The application layer: users, avatars, topics, work queues, services."""
