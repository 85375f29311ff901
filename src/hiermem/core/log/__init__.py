"""What edits, erasures, forks and re-packs do to the trees that stand."""
