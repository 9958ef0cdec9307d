"""The value of an IDL expression in whole numbers: a second, plain implementation for tests."""

import functools
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
    return parsed(text)(scalars)


@functools.cache
def parsed(text):
    """The function of the scalars that `text` stands for."""
    parser = _Parser(TOKEN.findall(text))
    value = parser.select()
    if parser.tokens:
        raise ValueError(f"{text!r} ends at {parser.tokens[0]!r}")
    return value


class _Parser:
    def __init__(self, tokens):
        self.tokens = [token for token in tokens if token.strip()]

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
        return lambda scalars: first(scalars) if condition(scalars) else second(scalars)

    def binary(self, level):
        if level == len(LEVELS):
            return self.unary()
        value = self.binary(level + 1)
        while symbol := self.take(*LEVELS[level]):
            value = both(LEVELS[level][symbol], value, self.binary(level + 1))
        return value

    def unary(self):
        if self.take("-"):
            value = self.unary()
            return lambda scalars: -value(scalars)
        if self.take("!"):
            value = self.unary()
            return lambda scalars: int(not value(scalars))
        value = self.primary()
        return both(pow, value, self.unary()) if self.take("^") else value

    def primary(self):
        token = self.tokens.pop(0)
        if token == "(":
            value = self.select()
            assert self.take(")")
            return value
        if token.isdigit() or token.startswith("'"):
            number = int(token) if token.isdigit() else ord(token[1])
            return lambda _: number
        if token in ("min", "max") and self.take("("):
            first = self.select()
            assert self.take(",")
            second = self.select()
            assert self.take(")")
            return both(min if token == "min" else max, first, second)
        return lambda scalars: code(scalars[token])


def both(operation, first, second):
    return lambda scalars: operation(first(scalars), second(scalars))


def code(value):
    return ord(value) if isinstance(value, str) else value
