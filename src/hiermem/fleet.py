"""Updates of single sessions for job queues; see ``docs/fleet.md``."""

from hiermem.api.fleet import update_one

__all__ = ["update_one"]
