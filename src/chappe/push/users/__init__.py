"""Push to users of the hub: who has a session gets notes there, as on a device."""
