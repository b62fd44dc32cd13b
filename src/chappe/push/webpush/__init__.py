"""Web Push: the bridge to the push services of browsers (RFC 8030, 8291, 8292)."""
