"""The page that shows a memory: one HTML file without a server, for a reader and a bug report.

``read`` waits for what the page shows, ``data`` writes it as plain values, ``page`` joins them with
the style and the script that stand beside it. It imports every feature, no adapter.
"""
