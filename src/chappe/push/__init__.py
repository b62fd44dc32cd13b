"""Push to devices: comet, web, admin (P1 to P15)."""
