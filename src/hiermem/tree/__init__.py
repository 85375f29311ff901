"""How messages become windows, and windows levels of nodes; pure, and without any text.

Begin with ``fold``: an append's messages in, the sealed nodes out. ``windows`` and ``levels`` say
when one closes, ``status`` what may become of a node. The folder may import ``text``.
"""
