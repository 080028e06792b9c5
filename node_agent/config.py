"""Settings of the node agent, from the chart's ConfigMap."""

from typing import Annotated

import msgspec

from outrider.component import ComponentConfig

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Config(ComponentConfig, frozen=True, kw_only=True):
    """Times in seconds."""

    kernel_log_path: str = "/dev/kmsg"
    """Character device, or a regular file with one record of the same form a line."""
    boot_id_path: str = "/proc/sys/kernel/random/boot_id"
    """Holds a text that changes with each boot of the node."""
    kubelet_pods_dir: str = "/var/lib/kubelet/pods"
    """The kubelet's pods folder on the host: emptyDir volumes are read and written there."""
    state_dir: str = "/var/lib/outrider"
    """Where evidence is kept over restarts of the agent."""
    expected_gpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    """GPUs that the node must have; 0: learn from what NVML lists."""
    disabled_probes: list[str] = []
    """Names of probes that are switched off: nvml, kernel-log."""
    nvml_period_seconds: Seconds = 1.0
    """Pause between two readings of all GPUs."""
    nvml_hang_seconds: Seconds = 10.0
    """A GPU that takes longer to read hangs: far above the milliseconds of a healthy one, below GSP's 45 s."""
    nvml_retry_seconds: Seconds = 30.0
    """How long a GPU that hung is left out of the readings."""
    kernel_log_period_seconds: Seconds = 0.05
    """Pause between two looks at a kernel log that is a regular file; a device wakes the agent itself."""
    clear_dwell_seconds: Seconds = 30.0
    """Good readings that a state needs before its finding is cleared."""
    heartbeat_seconds: Seconds = 30.0
    """How old the published status may get when nothing changes."""
    publish_pause_seconds: Seconds = 0.2
    """Least time between two publications: changes that come together go out together."""
    rank_period_seconds: Seconds = 0.25
    """Pause between two looks at the beacons of the node's training ranks."""
    rank_publish_seconds: Seconds = 10.0
    """How old the published steps of running ranks may get; new ranks and answers go out at once."""
