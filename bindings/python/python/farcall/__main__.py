"""`python -m farcall`: the command `farcall` of the same installation."""

import os
import shutil
import sys
import sysconfig


def main() -> None:
    """Becomes the command, with the same arguments."""
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    folders = [sysconfig.get_path("scripts", scheme) for scheme in schemes]
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    command = shutil.which("farcall", path=path)
    if command is None:
        sys.exit(
            "error: the command `farcall` is neither beside this package nor in PATH; install both "
            "with `pip install farcall`"
        )
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
