"""Run ``python -m hiermem``: the same as the ``hiermem`` command."""

from hiermem.cli import main

if __name__ == "__main__":
    main()
