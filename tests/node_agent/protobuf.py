"""Writes protobuf messages by hand: the other direction of what the agent reads."""


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def devices(resource: str, *ids: str) -> bytes:
    topology = field(3, field(1, field(1, 0)))
    return field(2, field(1, resource) + b"".join(field(2, one) for one in ids) + topology)


def claim(name: str, driver: str, pool: str, device: str, cdi: str = "") -> bytes:
    resource = field(1, field(1, cdi)) + field(2, driver) + field(3, pool) + field(4, device)
    return field(5, field(2, name) + field(3, "default") + field(4, resource))


def pod(namespace: str, name: str, *parts: bytes) -> bytes:
    containers = b"".join(field(3, field(1, f"c{index}") + part + field(3, 7)) for index, part in enumerate(parts))
    return field(1, field(1, name) + field(2, namespace) + containers)
