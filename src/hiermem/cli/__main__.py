"""Run ``python -m hiermem.cli``: the same as the ``hiermem`` command."""

from hiermem.cli import main

if __name__ == "__main__":
    main()
