"""What edits, erasures, forks and re-packs do to a session's existing trees."""
