"""The value of an IDL expression in whole numbers: a second, plain implementation for tests."""

import re

TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|'.'|&&|\|\||<=|>=|==|!=|.)")

LEVELS = [
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        "<=": lambda a, b: int(a <= b),
        ">": lambda a, b: int(a > b),
        ">=": lambda a, b: int(a >= b),
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: int(a / b), "%": lambda a, b: a - int(a / b) * b},
]


def evaluate(text, scalars):
    """The value of `text` with scalars by name; characters count as their codes."""
    parser = _Parser(TOKEN.findall(text), scalars)
    value = parser.select()
    if parser.tokens:
        raise ValueError(f"{text!r} ends at {parser.tokens[0]!r}")
    return value


class _Parser:
    def __init__(self, tokens, scalars):
        self.tokens = [token for token in tokens if token.strip()]
        self.scalars = scalars

    def take(self, *symbols):
        if self.tokens and self.tokens[0] in symbols:
            return self.tokens.pop(0)
        return None

    def select(self):
        condition = self.binary(0)
        if not self.take("?"):
            return condition
        first = self.select()
        assert self.take(":")
        second = self.select()
        return first if condition else second

    def binary(self, level):
        if level == len(LEVELS):
            return self.unary()
        value = self.binary(level + 1)
        while symbol := self.take(*LEVELS[level]):
            value = LEVELS[level][symbol](value, self.binary(level + 1))
        return value

    def unary(self):
        if self.take("-"):
            return -self.unary()
        if self.take("!"):
            return int(not self.unary())
        value = self.primary()
        return value ** self.unary() if self.take("^") else value

    def primary(self):
        token = self.tokens.pop(0)
        if token == "(":
            value = self.select()
            assert self.take(")")
            return value
        if token.isdigit():
            return int(token)
        if token.startswith("'"):
            return ord(token[1])
        if token in ("min", "max") and self.take("("):
            first = self.select()
            assert self.take(",")
            second = self.select()
            assert self.take(")")
            return min(first, second) if token == "min" else max(first, second)
        value = self.scalars[token]
        return ord(value) if isinstance(value, str) else value
