"""Admin: apps, sending, jobs; what app servers and administrators ask (P1)."""
