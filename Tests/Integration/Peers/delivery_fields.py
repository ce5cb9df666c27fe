"""The fields of the records of docs/delivery.md."""

# Stands where a record has no token or no epoch.
NOBODY = bytes(16)


class Violation(Exception):
    """The peer has broken a rule."""


def check(condition, reason):
    if not condition:
        raise Violation(reason)


def write_number(value):
    """The form of RFC 9000, section 16, in as few bytes as possible."""
    for size, prefix in ((1, 0x00), (2, 0x40), (4, 0x80), (8, 0xC0)):
        if value < 1 << 8 * size - 2:
            data = value.to_bytes(size, "big")
            return bytes([data[0] | prefix]) + data[1:]
    raise ValueError(f"{value} has more than 62 bits")


def write_numbers(*values):
    return b"".join(map(write_number, values))


class Fields:
    """Reads the fields of a record."""

    def __init__(self, data):
        self.data = data

    def take(self, count):
        check(len(self.data) >= count, "a record is too short")
        field, self.data = self.data[:count], self.data[count:]
        return field

    def rest(self):
        return self.take(len(self.data))

    def identifier(self):
        return self.take(16)

    def number(self):
        first = self.take(1)
        data = first + self.take((1 << (first[0] >> 6)) - 1)
        value = int.from_bytes(data, "big") & (1 << 8 * len(data) - 2) - 1
        check(write_number(value) == data, "a number is in a longer form")
        return value

    def numbers(self, count):
        return [self.number() for _ in range(count)]

    def end(self):
        check(not self.data, "a record has bytes left over")
