"""Web: tokens and comets for devices, what devices tell (P1)."""
