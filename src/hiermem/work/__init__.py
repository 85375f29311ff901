"""Updates many sessions: the background worker and ``update_all``."""
