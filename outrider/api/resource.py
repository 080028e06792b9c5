"""resource.k8s.io (Dynamic Resource Allocation): devices that drivers offer, and taints on single devices.

DeviceTaintRule is served as v1 from Kubernetes 1.37 on by default (KEP-5055; feature gate DRADeviceTaintRules).
"""

from outrider.api.meta import ObjectMeta, Resource, Root


class DeviceAttribute(Resource, frozen=True, kw_only=True):
    """Value of an attribute, as far as it is a text."""

    string: str | None = None


class Device(Resource, frozen=True, kw_only=True):
    """One device of a slice; attribute names may carry the driver's domain: ``uuid`` or ``gpu.nvidia.com/uuid``."""

    name: str
    attributes: dict[str, DeviceAttribute] = {}


class ResourcePool(Resource, frozen=True, kw_only=True):
    """The pool that a slice is a part of; slices of older generations are out of date."""

    name: str
    generation: int = 0


class ResourceSliceSpec(Resource, frozen=True, kw_only=True):
    """Devices that a driver offers."""

    driver: str
    pool: ResourcePool
    node_name: str = ""
    devices: list[Device] = []


class ResourceSlice(Resource, frozen=True, kw_only=True):
    """A part of a driver's devices on one node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec


class DeviceSelector(Resource, frozen=True, kw_only=True):
    """Names one device; all fields must match."""

    driver: str = ""
    pool: str = ""
    device: str = ""


class DeviceTaint(Resource, frozen=True, kw_only=True):
    """What keeps claims without a matching toleration off a device."""

    key: str
    value: str = ""
    effect: str


class DeviceTaintRuleSpec(Resource, frozen=True, kw_only=True):
    """Which device gets which taint; the rule of somebody else may have no selector."""

    device_selector: DeviceSelector | None = None
    taint: DeviceTaint


class DeviceTaintRule(Root, frozen=True, kw_only=True):
    """A taint on the devices that it selects."""

    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
    api_version: str = "resource.k8s.io/v1"
    kind: str = "DeviceTaintRule"
