"""Runs the named benchmarks, or all. Each prints its ratio, the goal, and what it was made of."""

from __future__ import annotations

import importlib
import sys

NAMES = ("startup", "fold", "screen", "point", "server")


def main() -> int:
    names = sys.argv[1:] or NAMES
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no benchmark {unknown[0]}: there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in names:
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
