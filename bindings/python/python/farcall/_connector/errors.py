"""What is wrong with a source: the kind for the server, and a text for its user."""


class SourceError(Exception):
    """A source cannot be read."""

    kind = "unreachable"


class RefusedError(SourceError):
    """The operator has not named the address, or the source does not let the server in."""

    kind = "refused"


class MissingError(SourceError):
    """There is nothing at the address."""

    kind = "missing"


class UnfitError(SourceError):
    """The request makes no sense, or what is at the address is no array that fits it."""

    kind = "unfit"


class TooLargeError(SourceError):
    """The source is larger than the operator allows."""

    kind = "large"


class UnreachableError(SourceError):
    """The source does not answer, is slow, or has changed while it was read."""
