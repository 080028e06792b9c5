"""Which pod holds which GPU, out of the kubelet's answer to PodResourcesLister.List (k8s.io/kubelet podresources v1).

Reads the protobuf fields that it needs by hand: five small messages do not pay for a protobuf library in memory.
Field numbers are those of api.proto; unknown fields are passed over, as protobuf wants it. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

METHOD: Final = "/v1.PodResourcesLister/List"
_NVIDIA: Final = "nvidia.com/"  # resources of the device plugin: nvidia.com/gpu, nvidia.com/mig-1g.10gb, ...
_VARINT_BYTES: Final = 10
_FIXED: Final = {1: 8, 5: 4}  # bytes of wire types with a fixed length
_BYTES: Final = 2
_UUID: Final = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class BadMessage(ValueError):
    """The bytes are no message of this kind; the text says at which byte."""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod holds."""

    namespace: str
    pod: str
    devices: list[str] = []
    """Ids of NVIDIA devices as the device plugin named them."""
    claims: list[str] = []
    """Devices of resource claims: UUID of the GPU where a name holds it, else driver/pool/device."""


def read_holdings(message: bytes) -> list[Holding]:
    """Return what each pod holds, pods without GPUs left out. Raises BadMessage."""
    found = (_pod(_message(value)) for number, value in _fields(message) if number == 1)
    return [holding for holding in found if holding.devices or holding.claims]


def holders(holdings: Iterable[Holding], pod_uids: Mapping[str, str]) -> dict[str, str]:
    """Return the holder's UID for each GPU; ``pod_uids`` is by namespace/name.

    A pod whose UID is not known is left out. Of several pods that share a GPU the first by name is told.
    """
    held: dict[str, str] = {}
    for holding in sorted(holdings, key=lambda one: (one.namespace, one.pod)):
        uid = pod_uids.get(f"{holding.namespace}/{holding.pod}")
        if uid is not None:
            for device in (*holding.devices, *holding.claims):
                held.setdefault(_gpu(device), uid)
    return held


def _gpu(device: str) -> str:
    """Return the GPU of a device: shared ones carry ::N, MIG devices of drivers before R470 the GPU's own UUID."""
    plain = device.partition("::")[0]
    found = _UUID.search(plain)
    return found[0] if found and plain.startswith("MIG-") else plain


def _pod(pod: bytes) -> Holding:
    namespace, name, devices, claims = "", "", list[str](), list[str]()
    for number, value in _fields(pod):
        if number == 1:
            name = _text(value)
        elif number == 2:
            namespace = _text(value)
        elif number == 3:
            for part, content in _fields(_message(value)):
                if part == 2:
                    devices += _devices(_message(content))
                elif part == 5:
                    claims += _claimed(_message(content))
    return Holding(namespace=namespace, pod=name, devices=devices, claims=claims)


def _devices(message: bytes) -> list[str]:
    resource, ids = "", list[str]()
    for number, value in _fields(message):
        if number == 1:
            resource = _text(value)
        elif number == 2:
            ids.append(_text(value))
    return ids if resource.startswith(_NVIDIA) else []


def _claimed(message: bytes) -> list[str]:
    """Devices of a DynamicResource whose driver is NVIDIA's."""
    claims = (_claim_resource(_message(value)) for number, value in _fields(message) if number == 4)
    return [device for device in claims if device]


def _claim_resource(message: bytes) -> str:
    names = {2: "", 3: "", 4: ""}  # driver, pool, device
    cdi = ""
    for number, value in _fields(message):
        if number in names:
            names[number] = _text(value)
        elif number == 1:
            cdi += "".join(_text(name) for part, name in _fields(_message(value)) if part == 1)
    driver, pool, device = names.values()
    if not driver.endswith("nvidia.com"):
        return ""
    uuid = _UUID.search(f"{device} {cdi}")
    return uuid[0] if uuid else f"{driver}/{pool}/{device}"


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field in order."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            length, place = _varint(message, place)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise BadMessage(f"byte {place}: wire type {kind}")
        if length > len(message) - place:
            raise BadMessage(f"byte {place}: {length} bytes are announced, {len(message) - place} are left")
        yield tag >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(message[place : place + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, place + count + 1
    raise BadMessage(f"byte {place}: a number without end")


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise BadMessage("a number where a message should be")
    return value


def _text(value: int | bytes) -> str:
    return _message(value).decode("utf-8", "replace")
