"""Rotation by steps, with the time given: no step can be missed, and at no time does trust break."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from outrider.api.admission import ClientConfig, MutatingWebhookConfiguration, Webhook
from webhook.certificates import Lifetimes, Material, Step, apply, next_step, read
from webhook.objects import Secret, bundle_patch

NAMES = ("outrider-webhook.outrider-system.svc", "outrider-webhook.outrider-system")
START = datetime(2027, 1, 1, tzinfo=UTC)
LIVES = Lifetimes()


class World:
    """A Secret, what the API server trusts, and the certificate that the slowest replica still serves."""

    def __init__(self) -> None:
        self.now = START
        self.material: Material | None = None
        self.published = b""
        self.served = b""
        self.steps: list[Step] = []

    def settle(self, names: Sequence[str] = NAMES) -> None:
        while step := self._due(names):
            self.steps.append(step)
            if step is Step.PUBLISH:
                assert self.material is not None
                self.published = self.material.bundle
            else:
                self.material = apply(step, self.material, names, self.now, LIVES)

    def pass_time(self, period: timedelta, replica_lag: bool = False) -> None:
        self.now += period
        if not replica_lag and self.material is not None:
            self.served = self.material.certificate

    def _due(self, names: Sequence[str]) -> Step | None:
        published = self.material is not None and self.published == self.material.bundle
        return next_step(self.material, published, names, self.now, LIVES)

    def is_trusted(self) -> bool:
        store = Store(x509.load_pem_x509_certificates(self.published))
        verifier = PolicyBuilder().store(store).time(self.now).build_server_verifier(x509.DNSName(NAMES[0]))
        verifier.verify(x509.load_pem_x509_certificate(self.served), [])
        return True


def fresh() -> World:
    world = World()
    world.settle()
    world.pass_time(timedelta(0))
    return world


def test_first_start_creates_everything_and_publishes_it() -> None:
    world = fresh()
    assert world.steps == [Step.CREATE, Step.PUBLISH]
    assert world.is_trusted()


def test_nothing_is_due_in_the_first_two_thirds_of_a_life() -> None:
    world = fresh()
    world.pass_time(LIVES.serving * 0.66)
    world.settle()
    assert world.steps == [Step.CREATE, Step.PUBLISH]


def test_serving_certificate_is_renewed_by_the_same_ca_at_two_thirds_of_its_life() -> None:
    world = fresh()
    bundle = world.published
    world.pass_time(LIVES.serving * 0.67)
    world.settle()
    assert world.steps[2:] == [Step.ISSUE]
    assert world.published == bundle


def test_five_years_of_rotation_never_break_trust_even_with_a_slow_replica() -> None:
    world = fresh()
    while world.now < START + timedelta(days=5 * 365):
        before = len(world.steps)
        world.settle()
        assert world.is_trusted(), "the slowest replica still serves the certificate before"
        moved = len(world.steps) > before
        world.pass_time(timedelta(seconds=30) if moved else timedelta(days=2))
        if moved:
            world.settle()
            assert world.is_trusted()
            world.pass_time(LIVES.settle)
    assert world.steps.count(Step.ADD_CA) == world.steps.count(Step.DROP_CA) >= 3
    assert world.steps.count(Step.ISSUE) >= 25


def test_valid_certificate_waits_for_the_new_ca_to_settle() -> None:
    world = fresh()
    world.pass_time(LIVES.ca * 0.66)
    world.settle()  # a serving certificate issued late in the CA's life
    world.pass_time(LIVES.ca * 0.01)
    world.steps.clear()
    world.settle()
    assert world.steps == [Step.ADD_CA, Step.PUBLISH]
    world.pass_time(LIVES.settle - timedelta(seconds=1), replica_lag=True)
    world.settle()
    assert world.steps == [Step.ADD_CA, Step.PUBLISH]
    world.pass_time(timedelta(seconds=1), replica_lag=True)
    world.settle()
    assert world.steps[2:] == [Step.ISSUE]


def test_old_ca_leaves_once_no_replica_can_serve_its_certificate() -> None:
    world = fresh()
    world.pass_time(LIVES.ca * 0.67)  # longer than a serving certificate lives: an expired one need not wait
    world.settle()
    assert world.steps[2:] == [Step.ADD_CA, Step.PUBLISH, Step.ISSUE]
    world.pass_time(LIVES.overlap - timedelta(minutes=1))
    world.settle()
    assert Step.DROP_CA not in world.steps
    world.pass_time(timedelta(minutes=2))
    world.settle()
    assert world.steps[-2:] == [Step.DROP_CA, Step.PUBLISH]
    assert world.is_trusted()


def test_other_names_get_another_certificate() -> None:
    world = fresh()
    world.settle(["else.where.svc"])
    assert world.steps[2:] == [Step.ISSUE]


def test_secret_round_trip_keeps_the_material() -> None:
    world = fresh()
    assert world.material is not None
    assert read(Secret(data=world.material.data())) == world.material


@pytest.mark.parametrize("broken", ["", "AAAA", "%%%", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="])
@pytest.mark.parametrize("field", ["tls.crt", "tls.key", "ca.crt", "ca.key"])
def test_secret_that_was_tampered_with_is_replaced(field: str, broken: str) -> None:
    world = fresh()
    assert world.material is not None
    assert read(Secret(data=world.material.data() | {field: broken})) is None
    assert read(Secret()) is None


def test_key_of_another_certificate_is_not_taken() -> None:
    one, other = fresh().material, fresh().material
    assert one is not None
    assert other is not None
    mixed = one.data() | {"tls.key": other.data()["tls.key"]}
    assert read(Secret(data=mixed)) is None


def test_python_and_the_api_server_can_load_what_is_written() -> None:
    world = fresh()
    context = ssl.create_default_context(cadata=world.published.decode())
    assert len(context.get_ca_certs()) == 1


def test_bundle_goes_to_every_webhook_that_lacks_it_and_only_on_the_version_read() -> None:
    current = Webhook(name="b", client_config=ClientConfig(ca_bundle="bmV3"))
    configuration = MutatingWebhookConfiguration(webhooks=[Webhook(name="a"), current])
    patch = bundle_patch(configuration, b"new")
    assert [operation["path"] for operation in patch] == [
        "/metadata/resourceVersion", "/webhooks/0/clientConfig/caBundle"
    ]  # fmt: skip
    assert bundle_patch(MutatingWebhookConfiguration(webhooks=[current]), b"new") == []
