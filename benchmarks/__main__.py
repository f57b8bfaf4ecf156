"""Runs the named benchmarks, or all. Each prints its ratio, the goal, and what it was made of.

Options after a single name are that benchmark's own (`python -m benchmarks server --help`).
"""

from __future__ import annotations

import importlib
import sys

NAMES = ("startup", "fold", "screen", "point", "server")


def main() -> int:
    first = next((i for i, word in enumerate(sys.argv) if i and word.startswith("-")), len(sys.argv))
    names, options = sys.argv[1:first] or NAMES, sys.argv[first:]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no benchmark {unknown[0]}: there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    if options and len(names) != 1:
        print("options belong to one benchmark: name it before them", file=sys.stderr)
        return 2
    for name in names:
        run = importlib.import_module(f"benchmarks.{name}").main
        run(options) if options else run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
