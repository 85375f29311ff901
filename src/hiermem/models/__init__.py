"""Language models for hiermem. None is imported here: take the one you use from its module."""
