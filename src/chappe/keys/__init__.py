"""Sessions that are addressed by key: who has which, what is sent to them, what they say (K)."""
