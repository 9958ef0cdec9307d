"""Sources in buckets of an S3 service. The package `botocore` signs the requests."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from .errors import UnreachableError
from .http import REDIRECTS, Answer, Web

try:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
except ImportError:
    AWSRequest = None

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .addresses import Address, Entry
    from .content import Content

_NOTHING = hashlib.sha256().hexdigest()
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")


class Bucket(Web):
    """One object of a bucket. All requests go to the endpoint that the operator names."""

    def __init__(self, address: Address, entries: Sequence[Entry]) -> None:
        """Nothing is opened yet."""
        super().__init__(address, entries)
        if AWSRequest is None:
            raise UnreachableError(
                f"the source `{address}` needs the package `botocore` at the server: its operator "
                f"can install it (`python3 -m pip install botocore`)"
            )

    def _ask(self, headers: dict[str, str]) -> Answer:
        """Asks the service, which sends the server nowhere else."""
        target = self._target()
        signed = self._signed("GET", target, headers, _NOTHING)
        answer = Answer(target, self.entry, self.deadline, signed)
        if answer.status in REDIRECTS:
            reason = self._reason(answer)
            answer.close()
            raise UnreachableError(
                f"the source `{self.address}` is elsewhere (HTTP status {answer.status}{reason}): "
                f"its operator can check `endpoint` and `region` of [sources.{self.entry.name}]"
            )
        return answer

    def _put(self, content: Content) -> Answer:
        target = self._target()
        signed = self._signed("PUT", target, {}, content.digest("sha256").hex())
        return Answer(target, self.entry, self.deadline, signed, content)

    def _target(self) -> Address:
        """The address at the service."""
        endpoint = self.entry.endpoint
        assert endpoint is not None
        key = quote(unquote(self.address.path), safe="/~")
        path = f"/{self.address.host}{key}"
        return type(endpoint)(endpoint.scheme, endpoint.host, endpoint.port, path)

    def _signed(
        self, method: str, target: Address, headers: dict[str, str], sha256: str
    ) -> dict[str, str]:
        """The lines of a request, signed if the operator has given a key."""
        host = str(target).removeprefix(f"{target.scheme}://").partition("/")[0]
        headers = headers | {"Host": host}
        if method == "GET":
            headers["x-amz-checksum-mode"] = "ENABLED"
        if self.entry.user is None:
            return headers
        request = AWSRequest(method, str(target), headers)
        key = Credentials(self.entry.user, self.entry.password or "", self.entry.token)
        region = self.entry.region or "us-east-1"
        signer = S3SigV4Auth(key, "s3", region)
        signer.payload = lambda _request: sha256
        signer.add_auth(request)
        return dict(request.headers.items())

    def _reason(self, answer: Answer) -> str:
        """The word that the service has for an error."""
        found = _CODE.search(answer.piece())
        return "" if found is None else f", {found[1].decode()}"
