"""Kinds that only the command line reads, in the fields that it reads, and the labels of the chart's objects."""

from typing import Final

from outrider.api.meta import ObjectMeta, Resource
from outrider.kube.kinds import Kind

OURS: Final = "app.kubernetes.io/name=outrider"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"


class Namespace(Resource, frozen=True, kw_only=True):
    """A namespace; its labels switch Outrider on."""

    metadata: ObjectMeta = ObjectMeta()


class ConfigMap(Resource, frozen=True, kw_only=True):
    """A ConfigMap; ours hold one YAML file each."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


NAMESPACES: Final = Kind(Namespace, "namespaces", namespaced=False)
CONFIGMAPS: Final = Kind(ConfigMap, "configmaps")
