"""Checks of memory that need a process to themselves; ``test_codec.py`` starts them."""
