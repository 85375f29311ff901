"""What the adapters of remote services share. None of them is imported here."""
