"""Slow programs that follow the standards step by step, to check the fast ones against."""
