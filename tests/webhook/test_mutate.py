"""What a pod gets at admission, what it keeps, and that a second call changes nothing."""

import copy
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api import names
from outrider.api.core import Pod
from outrider.api.meta import ObjectMeta
from outrider.api.trainingpolicy import TrainingPolicy, TrainingPolicySpec
from outrider.telemetry.traces import job_traceparent
from tests.webhook.pods import CORPUS, JOB_UID, apply, container, env_of, owner, pod, sidecar
from webhook.mutate import Context, Mutation, NotUnderstood, mutate

CONTEXT = Context("team-a", "0e6f6b0a-1111-4222-8333-444455556666", "registry.example.com/outrider:1")


def changed(before: dict[str, Any], context: Context = CONTEXT) -> dict[str, Any]:
    return apply(before, mutate(before, context).patch)


def test_member_of_a_job_gets_gate_scheduler_label_trace_volume_and_init_container() -> None:
    after = changed(pod())
    spec, meta = after["spec"], after["metadata"]
    assert spec["schedulerName"] == names.SCHEDULER_NAME
    assert spec["schedulingGates"] == [{"name": names.GANG_GATE}]
    assert meta["labels"][names.JOB_UID_LABEL] == JOB_UID
    assert meta["annotations"][names.TRACEPARENT_ANNOTATION] == job_traceparent(JOB_UID)
    assert spec["volumes"] == [{"name": "outrider", "emptyDir": {}}]
    assert [c["command"] for c in spec["initContainers"]] == [["python3", "-m", "inpod.install", "/outrider"]]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "outrider", "mountPath": "/outrider"}]


def test_environment_of_a_torchrun_container_is_completed() -> None:
    env = env_of(changed(pod()))
    assert env["PYTHONPATH"] == "/outrider/py"
    assert env["OUTRIDER_DIR"] == "/outrider"
    assert env["TRACEPARENT"] == job_traceparent(JOB_UID)
    assert env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert env["PET_RDZV_CONF"] == "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=5"
    assert env["PET_MAX_RESTARTS"] == "100"
    assert env["PET_RDZV_ID"] == JOB_UID


def test_init_container_is_accepted_under_the_restricted_standard_and_keeps_a_guaranteed_pod_guaranteed() -> None:
    init = changed(pod())["spec"]["initContainers"][0]
    security = init["securityContext"]
    assert security["runAsNonRoot"]
    assert security["runAsUser"] != 0
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert init["resources"]["requests"] == init["resources"]["limits"]
    assert init["image"] == CONTEXT.image


def test_init_container_takes_the_pods_own_user_unless_that_is_root() -> None:
    def user(pod_user: int) -> object:
        after = changed(pod(securityContext={"runAsUser": pod_user}))
        return after["spec"]["initContainers"][0]["securityContext"].get("runAsUser")

    assert user(1000) is None
    assert user(0) == 65532


def test_init_container_has_the_environment_that_leaderworkerset_gives_to_every_container() -> None:
    theirs = [{"name": name, "value": "x"} for name in ("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")]
    after = changed(pod(container(env=[*theirs, {"name": "MINE", "value": "y"}])))
    assert after["spec"]["initContainers"][0]["env"] == theirs, "else their webhook makes the lifting of our gate fail"
    assert "env" not in changed(pod())["spec"]["initContainers"][0]


def test_users_python_path_stays_at_the_end() -> None:
    after = changed(CORPUS["pytorchjob with duplicate env"])
    values = [e["value"] for e in after["spec"]["containers"][0]["env"] if e["name"] == "PYTHONPATH"]
    assert values == ["/first", "/outrider/py:/src:$(HOME)"]


def test_python_path_from_a_config_map_stays_with_a_warning() -> None:
    entry = {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
    before = pod(container(env=[entry]))
    assert entry in changed(before)["spec"]["containers"][0]["env"]
    assert any("valueFrom" in warning for warning in mutate(before, CONTEXT).warnings)


def test_only_missing_rendezvous_settings_are_added_before_the_users() -> None:
    env = env_of(changed(CORPUS["user settings"]))
    assert env["PET_RDZV_CONF"] == ("keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=30,timeout=900")
    assert env["PET_MAX_RESTARTS"] == "0"
    assert env["TRACEPARENT"].endswith("b7ad6b7169203331-01")


def test_command_line_option_is_left_to_the_user_and_reported_where_it_hides_a_setting() -> None:
    mutation = mutate(CORPUS["shell"], CONTEXT)
    env = env_of(apply(CORPUS["shell"], mutation.patch))
    assert "PET_RDZV_CONF" not in env
    assert "PET_MAX_RESTARTS" not in env, "the shell sets it"
    assert env["PET_RDZV_ID"] == JOB_UID
    assert any("--rdzv-conf" in warning and "keep_alive_interval=1" in warning for warning in mutation.warnings)


def test_static_rendezvous_gets_no_torchrun_settings() -> None:
    command = ["torchrun", "--nnodes=2", "--node-rank=0", "--master-addr=a", "train.py"]
    env = env_of(changed(pod(container(command=command))))
    assert not [name for name in env if name.startswith(("PET_", "TORCH_"))]
    assert env["PYTHONPATH"] == "/outrider/py"


def test_restarts_are_not_set_where_the_launcher_is_unknown() -> None:
    env = env_of(changed(pod(container(command=["/entrypoint.sh"]))))
    assert "PET_MAX_RESTARTS" not in env
    assert env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"


def test_env_from_keeps_its_possible_values_and_says_so() -> None:
    mutation = mutate(CORPUS["env from"], CONTEXT)
    env = env_of(apply(CORPUS["env from"], mutation.patch))
    assert "PYTHONPATH" not in env
    assert env["OUTRIDER_DIR"] == "/outrider"
    assert any("envFrom" in warning for warning in mutation.warnings)


def test_literal_reference_keeps_its_meaning() -> None:
    before = pod(container(args=["--note=$(TRACEPARENT)"]))
    mutation = mutate(before, CONTEXT)
    assert "TRACEPARENT" not in env_of(apply(before, mutation.patch))
    assert any("$(TRACEPARENT)" in warning for warning in mutation.warnings)


def test_sidecar_without_gpus_stays_as_it_is() -> None:
    before = CORPUS["sidecar and mounts"]
    assert changed(before)["spec"]["containers"][0] == sidecar()


def test_worker_of_a_job_that_is_not_indexed_is_no_gang() -> None:
    after = changed(pod(metadata={"labels": {}, "annotations": {}}))
    assert "schedulingGates" not in after["spec"]
    assert after["spec"]["schedulerName"] == names.SCHEDULER_NAME


def test_pod_of_an_unknown_owner_is_neither_gated_nor_labelled() -> None:
    after = changed(pod(metadata={"ownerReferences": [owner("Job", "batch.example.com/v1")]}))
    assert "schedulingGates" not in after["spec"]
    assert names.JOB_UID_LABEL not in after["metadata"]["labels"]


def test_users_scheduler_stays_and_is_not_gated() -> None:
    mutation = mutate(CORPUS["own scheduler"], CONTEXT)
    after = apply(CORPUS["own scheduler"], mutation.patch)
    assert after["spec"]["schedulerName"] == "volcano"
    assert "schedulingGates" not in after["spec"]
    assert any("volcano" in warning for warning in mutation.warnings)


def test_pods_stay_with_the_default_scheduler_where_that_asks_our_extender() -> None:
    attached = replace(CONTEXT, scheduler_name="default-scheduler")
    after = changed(pod(), attached)
    assert after["spec"]["schedulerName"] == "default-scheduler"
    assert after["spec"]["schedulingGates"] == [{"name": names.GANG_GATE}]
    elsewhere = mutate(pod(schedulerName=names.SCHEDULER_NAME), attached)
    assert any(names.SCHEDULER_NAME in warning for warning in elsewhere.warnings)


def test_bound_pod_is_neither_gated_nor_rescheduled() -> None:
    after = changed(CORPUS["bound"])
    assert after["spec"]["schedulerName"] == "default-scheduler"
    assert "schedulingGates" not in after["spec"]


@pytest.mark.parametrize(
    "before",
    [
        pod(container(resources={})),
        pod(container(resources={"limits": {"nvidia.com/gpu": "0"}})),
        pod(metadata={"labels": {names.IGNORE_LABEL: "true"}}),
        pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
    ],
    ids=["no gpu", "zero gpus", "opted out", "mirror"],
)
def test_pod_that_is_not_ours_stays_as_it_is(before: dict[str, Any]) -> None:
    assert mutate(before, CONTEXT) == Mutation()


@pytest.mark.parametrize(
    ("before", "named"),
    [
        (pod(volumes=[{"name": "outrider", "hostPath": {"path": "/x"}}]), "volume"),
        (pod(volumes=[{"name": "outrider", "emptyDir": {}}]), "volume"),
        (pod(initContainers=[{"name": "outrider-inpod", "image": "theirs"}]), "init container"),
        (pod(container(volumeMounts=[{"name": "data", "mountPath": "/outrider/"}])), "/outrider"),
    ],
)
def test_pod_that_uses_our_names_for_its_own_things_is_left_alone_with_a_warning(
    before: dict[str, Any], named: str
) -> None:
    mutation = mutate(before, CONTEXT)
    assert mutation.patch == []
    assert len(mutation.warnings) == 1
    assert named in mutation.warnings[0]
    assert "rename" in mutation.warnings[0]


def test_policy_switches_injection_off() -> None:
    off = TrainingPolicy(metadata=ObjectMeta(name="off"), spec=TrainingPolicySpec(inject=False))
    assert mutate(pod(), Context("team-a", "u", "i", [off])) == Mutation()


@pytest.mark.parametrize("before", CORPUS.values(), ids=CORPUS)
def test_second_call_changes_nothing(before: dict[str, Any]) -> None:
    assert mutate(changed(before), CONTEXT).patch == []


@pytest.mark.parametrize("before", CORPUS.values(), ids=CORPUS)
def test_call_after_the_api_server_filled_in_defaults_changes_nothing(before: dict[str, Any]) -> None:
    after = changed(before)
    token = {"name": "kube-api-access-x2c4v", "mountPath": "/var/run/secrets", "readOnly": True}
    for each in [*after["spec"]["containers"], *after["spec"]["initContainers"]]:
        each["terminationMessagePath"] = "/dev/termination-log"
        each.setdefault("volumeMounts", []).append(token)
    after["spec"]["initContainers"][-1]["image"] = "mirror.example.com/outrider:1"
    assert mutate(after, CONTEXT).patch == []


@pytest.mark.parametrize("before", CORPUS.values(), ids=CORPUS)
def test_result_decodes_and_the_input_is_untouched(before: dict[str, Any]) -> None:
    kept = copy.deepcopy(before)
    after = changed(before)
    assert before == kept
    msgspec.convert({key: after[key] for key in ("spec",)}, Pod)


@pytest.mark.parametrize("warning", [w for before in CORPUS.values() for w in mutate(before, CONTEXT).warnings])
def test_warnings_are_short_enough_to_be_shown_whole(warning: str) -> None:
    assert len(f"outrider: {warning}") <= 256


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"spec": None},
        {"spec": {"containers": None}},
        {"spec": {"containers": [None]}},
        {"spec": 5},
        pod(container(env=[{"value": "no name"}])),
        pod(container(command="torchrun train.py")),
        pod(container(resources={"limits": {"nvidia.com/gpu": "eight"}})),
        pod(metadata={"labels": ["a"]}),
    ],
)
def test_object_that_is_no_pod_is_refused_with_the_field(garbage: dict[str, Any]) -> None:
    with pytest.raises(NotUnderstood, match=r"field|\$|quantity"):
        mutate(garbage, CONTEXT)


_NAMES = st.sampled_from(
    ["PYTHONPATH", "PET_RDZV_CONF", "PET_MAX_RESTARTS", "PET_RDZV_ID", "PET_RDZV_BACKEND", "OUTRIDER_DIR", "A", "RANK"]
)
_VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["a=1,last_call_timeout=9", ",", "c10d", "static", "/outrider/py", "/outrider/pyx:/b", "$(A)"]),
)
_ENV = st.lists(
    st.one_of(
        st.builds(lambda name, value: {"name": name, "value": value}, _NAMES, _VALUES),
        st.builds(lambda name: {"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, _NAMES),
    ),
    max_size=8,
)
_WORDS = st.lists(
    st.sampled_from(
        ["torchrun", "python", "sh", "-c", "-m", "torch.distributed.run", "--rdzv-conf", "--rdzv_id=7", "--standalone",
         "--max-restarts=0", "--rdzv-backend", "c10d", "train.py", "'", "exec torchrun --rdzv_c x=1 t.py", "$(A)"]
    ),
    max_size=7,
)  # fmt: skip
_CONTAINERS = st.builds(
    lambda env, command, args, env_from: container(env=env, command=command, args=args, envFrom=env_from),
    st.none() | _ENV,
    st.none() | _WORDS,
    st.none() | _WORDS,
    st.none() | st.just([{"secretRef": {"name": "s"}}]),
)
_PODS = st.one_of(
    st.sampled_from(list(CORPUS.values())), st.lists(_CONTAINERS, min_size=1, max_size=3).map(lambda all_: pod(*all_))
)


@given(_PODS)
def test_twice_is_once(before: dict[str, Any]) -> None:
    assert mutate(changed(before), CONTEXT).patch == []


@given(_PODS)
def test_everything_of_the_users_is_still_there(before: dict[str, Any]) -> None:
    after = changed(before)
    after["spec"]["schedulerName"] = before["spec"]["schedulerName"]
    _assert_contains(after, before)


def _assert_contains(after: Any, before: Any, path: str = "") -> None:
    """Objects keep their members, lists their entries and order; texts stay, or stay as the end of a longer one."""
    if isinstance(before, dict):
        for key, value in before.items():
            if value is not None:
                _assert_contains(after[key], value, f"{path}.{key}")
    elif isinstance(before, list):
        assert len(after) >= len(before), path
        for index, value in enumerate(before):
            _assert_contains(after[index], value, f"{path}[{index}]")
    elif path.endswith(".value"):
        assert after == before or after.endswith((f":{before}", f",{before}")) or not before, path
    else:
        assert after == before, path
