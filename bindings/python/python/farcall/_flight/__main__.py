"""What `farcall gateway flight` runs: `python -m farcall._flight SETTINGS`."""

import importlib
import json
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Runs a gateway, or writes the functions of a Flight service as a module."""
    if len(arguments) != 1:
        sys.stderr.write("only `farcall gateway flight` runs this module\n")
        return 2
    settings = json.loads(arguments[0])
    try:
        gateway = importlib.import_module("farcall._flight.gateway")
        service = importlib.import_module("farcall._flight.service")
    except ImportError as error:
        sys.stderr.write(
            f"error: {error}; install pyarrow for {sys.executable}, or name another interpreter in "
            "FARCALL_PYTHON\n"
        )
        return 1
    return int(service.write(settings) if settings["from"] else gateway.serve(settings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
