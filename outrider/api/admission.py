"""admissionregistration.k8s.io/v1 MutatingWebhookConfiguration, as far as trust in the webhook's certificate goes."""

from outrider.api.meta import ObjectMeta, Resource


class ClientConfig(Resource, frozen=True, kw_only=True):
    """How the API server reaches a webhook; ``ca_bundle`` is PEM in base64."""

    ca_bundle: str = ""


class Webhook(Resource, frozen=True, kw_only=True):
    """One webhook of a configuration."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


class MutatingWebhookConfiguration(Resource, frozen=True, kw_only=True):
    """Which requests the API server sends to which webhooks."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[Webhook] = []
