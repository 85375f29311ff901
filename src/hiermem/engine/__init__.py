"""The thin, asynchronous shell: reads snapshots, asks the core, calls models, commits."""
