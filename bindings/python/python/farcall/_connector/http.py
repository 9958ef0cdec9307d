"""Sources on the web."""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import re
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from .addresses import Address, Entry, find, parse
from .content import Content
from .errors import MissingError, RefusedError, SourceError, UnreachableError
from .network import Deadline, connect
from .parts import HEAD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .parts import Part

_PIECE = 1 << 20
_MOST_REDIRECTS = 5
_MOST_RESUMED = 3
_WRITTEN = (200, 201, 204)
_SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+)")

REDIRECTS = (301, 302, 303, 307, 308)
"""Statuses of pages that are elsewhere."""


class _Connection(http.client.HTTPConnection):
    """A connection to a checked address, with TLS for `https`."""

    def __init__(self, address: Address, entry: Entry, deadline: Deadline) -> None:
        # The line `Host` gets its brackets from http.client.
        super().__init__(address.host.strip("[]"), address.port)
        self._to = (address, entry, deadline)

    def connect(self) -> None:
        """Connects."""
        address, entry, deadline = self._to
        plain = connect(address, entry, deadline)
        if address.scheme == "https":
            context = ssl.create_default_context(cadata=entry.certificates)
            host = address.host.strip("[]")
            try:
                # An end without TLS's own may be that of half a page, whose length nobody knows.
                self.sock = context.wrap_socket(
                    plain, server_hostname=host, suppress_ragged_eofs=False
                )
            except BaseException:
                plain.close()
                raise
        else:
            self.sock = plain


class Answer:
    """The answer to one request."""

    def __init__(
        self,
        address: Address,
        entry: Entry,
        deadline: Deadline,
        headers: dict[str, str],
        content: Content | None = None,
    ) -> None:
        self.deadline = deadline
        self.connection = _Connection(address, entry, deadline)
        query = "" if address.query is None else f"?{address.query}"
        own = {"Accept-Encoding": "identity", "User-Agent": "farcall"} | headers
        if content is None:
            self.connection.request("GET", address.path + query, headers=own)
        else:
            own["Content-Length"] = str(content.length)
            # A service that refuses may answer before it has read all.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.connection.request("PUT", address.path, self._pieces(content), own)
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def _pieces(self, content: Content) -> Iterator[memoryview]:
        view = content.view()
        for begin in range(0, content.length, _PIECE):
            self.deadline.left()
            yield view[begin : begin + _PIECE]

    def header(self, name: str) -> str | None:
        """A line of the head."""
        return self.response.getheader(name)

    def piece(self) -> bytes:
        """The next bytes, as soon as there are some."""
        if self.connection.sock is not None:
            self.connection.sock.settimeout(self.deadline.left())
        self.deadline.left()
        return self.response.read1(_PIECE)

    def close(self) -> None:
        """Closes the connection."""
        self.response.close()
        self.connection.close()


def _credentials(entry: Entry) -> dict[str, str]:
    if entry.token is not None:
        return {"Authorization": f"Bearer {entry.token}"}
    if entry.user is not None:
        pair = f"{entry.user}:{entry.password or ''}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


class Web:
    """One source on the web."""

    def __init__(self, address: Address, entries: Sequence[Entry]) -> None:
        """Nothing is opened yet."""
        self.address = address
        self.entries = entries
        self.entry = find(entries, address)
        self.deadline = Deadline(str(address), self.entry.time_limit_s)

    def read(
        self, version: str | None, part: Part | None = None
    ) -> tuple[Content, str | None] | None:
        """The bytes, or those of a part, and their version; nothing if it is still the same."""
        with self._explained("read"):
            return self._read(version, part)

    def write(self, content: Content) -> str | None:
        """Writes all bytes. Returns their version."""
        if self.address.query is not None:
            raise RefusedError(f"the address `{self.address}` has a query: it is only read")
        with self._explained("written"):
            answer = self._put(content)
            if answer.status in REDIRECTS:
                answer.close()
                raise RefusedError(
                    f"the address `{self.address}` sends the server elsewhere (HTTP status "
                    f"{answer.status}), and arrays are written to the named address only"
                )
            if answer.status not in _WRITTEN:
                self._check(answer)
            tag = _strong(answer.header("ETag"))
            answer.close()
            return tag

    def _put(self, content: Content) -> Answer:
        credentials = _credentials(self.entry)
        return Answer(self.address, self.entry, self.deadline, credentials, content)

    @contextlib.contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        """Says which source an error is about."""
        try:
            yield
        except TimeoutError:
            raise self.deadline.missed() from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, SourceError):
                raise
            what = str(error) or type(error).__name__
            raise UnreachableError(
                f"the source `{self.address}` cannot be {done}: {what}"
            ) from None

    def _read(self, version: str | None, part: Part | None) -> tuple[Content, str | None] | None:
        headers = {} if version is None else {"If-None-Match": version}
        if part is not None:
            headers["Range"] = f"bytes=0-{HEAD - 1}"
        answer = self._ask(headers)
        if answer.status == 304 and version is not None:
            answer.close()
            return None
        if part is not None and answer.status == 206:
            return self._read_part(answer, part)
        if part is not None and answer.status == 416:
            # It is empty.
            answer.close()
            return self._read(version, None)
        self._check(answer)
        tag = _strong(answer.header("ETag"))
        length = answer.header("Content-Length")
        whole = int(length) if length is not None else None
        content = Content(str(self.address), self.entry)
        content.expect(whole or 0)
        promised = _sums(answer)
        self._take(answer, content, whole)
        if whole is not None:
            self._resume(content, tag, whole, (0, whole))
        for algorithm, digest in promised:
            content.check(algorithm, digest)
        return content, tag

    def _read_part(self, answer: Answer, part: Part) -> tuple[Content, str | None] | None:
        """The bytes of a part, which all come from the version that has this head."""
        tag = _strong(answer.header("ETag"))
        span = _SPAN.fullmatch(answer.header("Content-Range") or "")
        is_packed = (answer.header("Content-Encoding") or "identity") != "identity"
        if is_packed or tag is None or span is None or span[1] != "0":
            # Two answers could be of two versions, and packed bytes have no rows.
            answer.close()
            return self._read(None, None)
        whole = int(span[3])
        head = Content(str(self.address), self.entry)
        self._take(answer, head, min(whole, HEAD))
        ranges = part.ranges(bytes(head.view()), whole)
        if len(ranges) > 1:
            # One answer with all columns is cheaper than one for each.
            return self._read(None, None)
        [(offset, count)] = ranges
        content = Content(str(self.address), self.entry)
        content.part = part
        content.expect(count)
        content.add(bytes(head.view()[offset : offset + count]))
        self._resume(content, tag, whole, (offset, offset + count))
        return content, tag

    def _resume(
        self, content: Content, tag: str | None, whole: int, wanted: tuple[int, int]
    ) -> None:
        """Asks for what has not come yet. A connection that breaks off leaves some of it."""
        count, tries = wanted[1] - wanted[0], 0
        while content.length < count:
            tries += 1
            if tag is None or tries > _MOST_RESUMED:
                raise UnreachableError(
                    f"the source `{self.address}` ended after {content.length} of {count} bytes; "
                    f"try again"
                )
            self._go_on(content, tag, whole, wanted)

    def _take(self, answer: Answer, content: Content, whole: int | None) -> None:
        """Takes what comes. A connection that ends early may be resumed."""
        try:
            while piece := answer.piece():
                content.add(piece)
        except (http.client.IncompleteRead, ConnectionError, ssl.SSLEOFError):
            if whole is None:
                raise
        finally:
            answer.close()
        if whole is not None and content.length > whole:
            raise self._changed()

    def _go_on(self, content: Content, tag: str, whole: int, wanted: tuple[int, int]) -> None:
        """Asks for the rest of the wanted bytes, of the same version."""
        begin, end = wanted[0] + content.length, wanted[1]
        if begin == end:
            return
        last = "" if end == whole else end - 1
        answer = self._ask({"Range": f"bytes={begin}-{last}", "If-Match": tag})
        span = _SPAN.fullmatch(answer.header("Content-Range") or "")
        same = answer.status == 206 and answer.header("ETag") in (None, tag)
        if not same or span is None or (span[1], span[3]) != (str(begin), str(whole)):
            answer.close()
            raise self._changed()
        self._take(answer, content, end - wanted[0])

    def _changed(self) -> UnreachableError:
        return UnreachableError(
            f"the source `{self.address}` has changed while it was read; make the call again"
        )

    def _ask(self, headers: dict[str, str]) -> Answer:
        """Asks, also where the source sends the server, if the operator allows that address."""
        address, entry = self.address, self.entry
        for _ in range(_MOST_REDIRECTS):
            answer = Answer(address, entry, self.deadline, headers | _credentials(entry))
            if answer.status not in REDIRECTS:
                return answer
            target = answer.header("Location") or ""
            answer.close()
            try:
                address = parse(urljoin(str(address), target))
                if address.scheme not in ("http", "https"):
                    raise RefusedError
                entry = find(self.entries, address)
            except RefusedError:
                raise RefusedError(
                    f"the source `{self.address}` sends the server to `{target}`, which no entry "
                    f"of [sources] in its configuration names"
                ) from None
        raise UnreachableError(f"the source `{self.address}` sends the server in circles")

    def _check(self, answer: Answer) -> None:
        """Refuses an answer that is no content."""
        status, source = answer.status, f"the source `{self.address}`"
        reason = f"HTTP status {status}{'' if status == 200 else self._reason(answer)}"
        coding = answer.header("Content-Encoding") or "identity"
        if status == 200 and coding == "identity":
            return
        answer.close()
        if status == 200:
            raise UnreachableError(
                f"{source} is sent in the coding {coding}, which was not asked for"
            )
        if status in (404, 410):
            raise MissingError(f"{source} does not exist ({reason}); check the address")
        if status in (401, 403, 407):
            raise RefusedError(
                f"{source} does not let this server in ({reason}); its operator can "
                f"check the credentials of [sources.{self.entry.name}]"
            )
        raise UnreachableError(f"{source} answers with the {reason}")

    def _reason(self, _answer: Answer) -> str:
        """What an answer says about its status."""
        return ""


def _strong(tag: str | None) -> str | None:
    """A tag that stands for one version and no other."""
    return tag if tag is not None and tag.startswith('"') else None


def _sums(answer: Answer) -> list[tuple[str, bytes]]:
    """The checksums that the source offers."""
    found = []
    lines: list[tuple[str, str | None]] = [("md5", answer.header("Content-MD5"))]
    for line in (answer.header("Digest"), answer.header("Repr-Digest")):
        for part in (line or "").split(","):
            name, _, text = part.strip().partition("=")
            if name.lower() == "sha-256":
                lines.append(("sha256", text.strip(":")))
    lines.append(("sha256", answer.header("x-amz-checksum-sha256")))
    for algorithm, offered in lines:
        try:
            digest = base64.b64decode(offered or "", validate=True)
        except binascii.Error:
            continue
        if len(digest) == {"md5": 16, "sha256": 32}[algorithm]:
            found.append((algorithm, digest))
    return found
