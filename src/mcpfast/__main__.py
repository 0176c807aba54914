"""``python -m mcpfast``."""

import sys

from mcpfast.cli import main

if __name__ == "__main__":
    sys.exit(main())
