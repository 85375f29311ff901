"""Settings that hold for every test."""

from hypothesis import settings

# Shared machines stall: a slow example says nothing about the code. Timings are not asserted.
settings.register_profile("hiermem", deadline=None, print_blob=True)
settings.load_profile("hiermem")
