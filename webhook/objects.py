"""The Secret with the webhook's certificates, and the patch that makes the API server trust them."""

import base64
import binascii
from typing import Any, Final

from outrider.api.admission import MutatingWebhookConfiguration
from outrider.api.meta import ObjectMeta, Resource
from outrider.kube.kinds import Kind


class Secret(Resource, frozen=True, kw_only=True):
    """A Secret; values are base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None

    def value(self, name: str) -> bytes:
        """Return one decoded value, empty where it is absent or no base64."""
        try:
            return base64.b64decode((self.data or {}).get(name, ""), validate=True)
        except binascii.Error:
            return b""


SECRETS: Final[Kind[Secret]] = Kind(Secret, "secrets")


def bundle_patch(configuration: MutatingWebhookConfiguration, bundle: bytes) -> list[dict[str, Any]]:
    """Return the JSON patch that makes every webhook of the configuration trust ``bundle``.

    Empty where they all do. It holds only for the version that was read, so a concurrent change is never half undone.
    """
    wanted = base64.b64encode(bundle).decode()
    stale = [i for i, webhook in enumerate(configuration.webhooks) if webhook.client_config.ca_bundle != wanted]
    version = configuration.metadata.resource_version
    condition = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}] if stale else []
    return condition + [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": wanted} for index in stale
    ]
