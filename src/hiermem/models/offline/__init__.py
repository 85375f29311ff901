"""The rule-based model that needs no network."""
