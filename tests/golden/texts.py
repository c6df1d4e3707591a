"""Protobuf text, and the fields of what is read of it."""

import re

_TOKEN = re.compile(r'#[^\n]*|"([^"]*)"|([\w.+-]+)|([{}:\[\],])')


def parse(text):
    """Protobuf text: {field: [value, ...]}; a value is a message, a string or a number's text."""
    tokens = [(m[1], m[2], m[3]) for m in _TOKEN.finditer(text) if not m[0].startswith("#")]

    def message(at):
        fields = {}
        while at < len(tokens) and tokens[at][2] != "}":
            values = fields.setdefault(tokens[at][1], [])
            at += 1
            if tokens[at][2] == "{":
                inner, at = message(at + 1)
                values.append(inner)
            else:
                at += 1  # the colon
                closing = "]" if tokens[at][2] == "[" else None
                at += closing is not None
                while True:
                    string, word, sign = tokens[at]
                    at += 1
                    if sign is None:
                        values.append(string if string is not None else word)
                    if closing is None or sign == closing:
                        break
        return fields, at + 1

    return message(0)[0]


def numbers_of(config, field, default, count=2):
    """A repeated field that may hold one value for all."""
    values = [int(v) for v in config.get(field, [])] or list(default)
    if len(values) == count:
        return values
    return values * count if len(values) == 1 else [v for v in values for _ in range(2)]


def number_of(config, field, default):
    return float(config.get(field, [default])[0])


def whole(config, field, default=0):
    return int(config.get(field, [default])[0])


def word(config, field, default):
    return config.get(field, [default])[0]
