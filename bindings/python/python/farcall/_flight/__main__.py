"""What `farcall gateway flight` runs: `python -m farcall._flight SETTINGS`."""

import json
import sys
from collections.abc import Sequence

try:
    from . import gateway, service
except ImportError as error:
    sys.exit(
        f"error: {error}; install pyarrow for {sys.executable}, or name another interpreter in "
        "FARCALL_PYTHON"
    )


def main(arguments: Sequence[str]) -> int:
    """Runs a gateway, or writes the functions of a Flight service as a module."""
    if len(arguments) != 1:
        sys.stderr.write("only `farcall gateway flight` runs this module\n")
        return 2
    settings = json.loads(arguments[0])
    return service.write(settings) if settings["from"] else gateway.serve(settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
