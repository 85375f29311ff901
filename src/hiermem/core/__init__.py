"""Everything that decides anything: pure, synchronous, deterministic."""
