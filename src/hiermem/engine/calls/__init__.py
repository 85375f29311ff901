"""Makes model calls: slots, budget, rate, claim, journal, retry."""
