"""`python -m tui_tuner` is the command `tui-tuner`."""

import sys

from tui_tuner.cli import main

if __name__ == "__main__":
    sys.exit(main())
