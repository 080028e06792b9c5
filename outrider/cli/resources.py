"""Kinds that only the command line reads, in the fields that it reads."""

from typing import Final

from outrider.api.meta import ObjectMeta, Resource
from outrider.kube.kinds import Kind


class Namespace(Resource, frozen=True, kw_only=True):
    """A namespace; its labels switch Outrider on."""

    metadata: ObjectMeta = ObjectMeta()


class ClientConfig(Resource, frozen=True, kw_only=True):
    """How the API server reaches a webhook; ``ca_bundle`` is PEM in base64."""

    ca_bundle: str = ""


class Webhook(Resource, frozen=True, kw_only=True):
    """One webhook of a configuration."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()
    failure_policy: str = ""


class WebhookConfiguration(Resource, frozen=True, kw_only=True):
    """A MutatingWebhookConfiguration."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[Webhook] = []


class ConfigMap(Resource, frozen=True, kw_only=True):
    """A ConfigMap; ours hold one YAML file each."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


NAMESPACES: Final = Kind(Namespace, "namespaces", namespaced=False)
CONFIGMAPS: Final = Kind(ConfigMap, "configmaps")
WEBHOOK_CONFIGURATIONS: Final = Kind(
    WebhookConfiguration, "mutatingwebhookconfigurations", group="admissionregistration.k8s.io", namespaced=False
)
