"""Sources and destinations that are files of the server's machine. No symbolic link is followed."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING

from .content import Content
from .errors import MissingError, RefusedError, UnreachableError
from .network import Deadline
from .parts import HEAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .addresses import Address, Entry
    from .parts import Part

_PIECE = 1 << 20
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def open_beneath(root: str, path: str, address: Address) -> int:
    """A descriptor of a regular file in a folder, whose path has no links."""
    with _explained(address), _folder_of(root, path) as (folder, name):
        found = os.open(name, _PLAIN, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise RefusedError(f"the source `{address}` is not a regular file")
    return found


@contextlib.contextmanager
def _folder_of(root: str, path: str) -> Iterator[tuple[int, str]]:
    """The folder of a path below another folder, and the name in it. No link is followed."""
    folder = os.open(root, _FOLDER)
    try:
        *folders, name = path.split("/")
        for word in folders:
            inner = os.open(word, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder, name
    finally:
        os.close(folder)


@contextlib.contextmanager
def _explained(address: Address, what: str = "the source") -> Iterator[None]:
    """Says which address an error of the system is about, and what of it."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(f"{what} `{address}` does not exist; check the address") from None
    except PermissionError:
        raise RefusedError(
            f"the source `{address}` cannot be opened by user {os.geteuid()}, who reads sources "
            f"for the server (workers.user in its configuration)"
        ) from None
    except OSError as error:
        what = error.strerror or str(error)
        raise RefusedError(f"the source `{address}` is not opened: {what}") from None


def write(address: Address, entry: Entry, folder: str | None, content: Content) -> str:
    """Writes a file beside the one with this name, and renames it. Returns its version."""
    deadline = Deadline(str(address), entry.time_limit_s)
    root, path = root_of(address, entry, folder)
    with _explained(address, "the folder of"), _folder_of(root, path) as (parent, name):
        beside = f".{name[:64]}.{secrets.token_hex(8)}.farcall"
        made = os.open(beside, _NEW, 0o644, dir_fd=parent)
        try:
            rest = content.view()
            while rest:
                deadline.left()
                rest = rest[os.write(made, rest[:_PIECE]) :]
            os.fsync(made)
            os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
            return _version(made)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=parent)
            raise
        finally:
            os.close(made)


def _version(found: int) -> str:
    known = os.fstat(found)
    return f"{known.st_dev}-{known.st_ino}-{known.st_size}-{known.st_mtime_ns}"


def root_of(address: Address, entry: Entry, folder: str | None) -> tuple[str, str]:
    """The folder that the operator allows, and the path in it."""
    if address.scheme == "folder":
        if folder is None:
            raise RefusedError(
                f"the source `{address}` is not allowed: the server has no data folder "
                f"(data.folder in its configuration)"
            )
        return folder, address.path
    root = entry.address.path.rpartition("/")[0] + "/"
    return root, address.path.removeprefix(root)


class File:
    """One file."""

    def __init__(self, address: Address, entry: Entry, folder: str | None) -> None:
        """Nothing is opened yet."""
        self.address = address
        self.entry = entry
        self.folder = folder
        self.deadline = Deadline(str(address), entry.time_limit_s)

    def read(
        self, version: str | None, part: Part | None = None
    ) -> tuple[Content, str | None] | None:
        """The bytes, or those of a part, and their version; nothing if it is still the same."""
        root, path = root_of(self.address, self.entry, self.folder)
        found = open_beneath(root, path, self.address)
        try:
            before = _version(found)
            if version == before:
                return None
            content = Content(str(self.address), self.entry)
            length = os.fstat(found).st_size
            ranges = [(0, length)]
            if part is not None:
                ranges = part.ranges(os.pread(found, HEAD, 0), length)
                content.part = part
            content.expect(sum(count for _, count in ranges))
            for offset, count in ranges:
                self._take(found, content, offset, offset + count)
            if _version(found) != before:
                raise UnreachableError(
                    f"the source `{self.address}` has changed while it was read; make the call "
                    f"again"
                )
            return content, before
        except OSError as error:
            what = error.strerror or str(error)
            raise UnreachableError(f"the source `{self.address}` cannot be read: {what}") from None
        finally:
            os.close(found)

    def _take(self, found: int, content: Content, offset: int, end: int) -> None:
        """Takes bytes of the file. If it has become shorter, its version is another one."""
        while offset < end and (piece := os.pread(found, min(_PIECE, end - offset), offset)):
            self.deadline.left()
            content.add(piece)
            offset += len(piece)
