"""``python -m torch_recmetrics.offline`` is the command ``torch-recmetrics``."""

import sys

from torch_recmetrics.offline.commands import main

if __name__ == "__main__":
    sys.exit(main())
