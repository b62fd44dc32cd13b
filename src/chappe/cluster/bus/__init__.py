"""The bus over Redis: brokers of several processes that know each other's keys (K1 to K4, K8)."""
