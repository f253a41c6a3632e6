"""scripts/feedback: measures the reader of what comes back by a corpus with labels (`measure FOLDER LABELS`)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.mail.feedback import measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/feedback", description=__doc__)
    orders = parser.add_subparsers(dest="order", required=True)
    measuring = orders.add_parser("measure", help="how much of a corpus is read as its labels say")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("labels", type=Path, help=f"JSON lines: {measure.__doc__}")
    measuring.add_argument("--show", action="store_true", help="every miss")
    options = parser.parse_args()
    compared = list(measure.labelled(options.folder, options.labels))
    for one in compared:
        if options.show and not (one.whom and all(one.why)):
            print(one.name, "recipient" if not one.whom else "reason", one.said)
    print(measure.figures(compared))
    return 0


if __name__ == "__main__":
    sys.exit(main())
