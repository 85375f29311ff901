"""What an edit, an erasure or a quarantine changes, in every feature."""
