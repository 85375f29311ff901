"""Code that the adapters of remote services share. No service's package is imported here."""
