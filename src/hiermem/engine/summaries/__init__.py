"""Makes the summaries of a session: update, full re-pack, dry run."""
