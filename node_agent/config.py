"""Settings of the node agent, from the chart's ConfigMap."""

from typing import Annotated, Literal

import msgspec

from outrider.component import ComponentConfig

Seconds = Annotated[float, msgspec.Meta(gt=0, le=30 * 86_400)]  # without an end a probe would never be missed


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
    """Names of probes that are switched off, as the metric outrider_agent_probe_success has them."""
    nvml_period_seconds: Seconds = 10.0
    """Pause between two readings of all GPUs; NVML's events tell of grave faults in between."""
    nvml_hang_seconds: Seconds = 10.0
    """A GPU that takes longer to read hangs: far above the milliseconds of a healthy one, below GSP's 45 s."""
    nvml_retry_seconds: Seconds = 30.0
    """How long a GPU that hung is left out of the readings."""
    nvml_rescan_seconds: Seconds = 60.0
    """Time until NVML is started anew where it lists fewer GPUs than the node must have: it lists them at its start."""
    kernel_log_period_seconds: Seconds = 0.05
    """Pause between two looks at a kernel log that is a regular file, where nothing wakes the agent (no inotify)."""
    allow_drills: bool = False
    """Kernel-log lines that `outrider inject` marked as a drill count as if the driver had written them."""
    dcgm_exporter_url: str = ""
    """Metrics page of the node's dcgm-exporter, such as http://10.0.0.7:9400/metrics; empty: DCGM is not asked."""
    dcgm_period_seconds: Seconds = 30.0
    """Pause between two readings of dcgm-exporter, which itself collects every 30 s by default."""
    dcgmi_path: str = ""
    """The dcgmi program, for diagnostics that remediation asks for; empty: none are run."""
    pod_resources_socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    """Where the kubelet tells which pod holds which GPU; empty: it is not asked."""
    kubelet_mismatch_seconds: Seconds = 120.0
    """How long the kubelet may offer more or fewer GPUs than NVML can use before that is a finding."""
    checks_dir: str = ""
    """Folder with checks of your own, each an executable file; empty: none are run."""
    checks_uid: Annotated[int, msgspec.Meta(ge=1, lt=2**32 - 1)] = 65534
    """User and group that checks run as."""
    sys_path: str = "/sys"
    """Where the host's sysfs is seen; the container's own shows the network devices of the pod only."""
    proc_path: str = "/proc"
    """Where the host's procfs is seen: its first process has the host's mounts and routes."""
    dev_path: str = "/dev"
    """Where the host's device nodes are seen; without a folder infiniband there, nodes of NICs are not looked for."""
    nic_period_seconds: Seconds = 5.0
    """Pause between two readings of the RDMA network adapters."""
    expected_nics: Annotated[int, msgspec.Meta(ge=0)] = 0
    """RDMA devices for training that the node must have with a port up; 0: learn from what was there."""
    ignored_nics: list[str] = []
    """RDMA devices that are not looked at, by name or pattern such as mlx5_1*."""
    host_period_seconds: Seconds = 30.0
    """Pause between two looks at disks, clock and memory."""
    cloud: Literal["", "aws", "gcp", "azure", "oci"] = ""
    """Whose metadata service is asked for maintenance notices; empty: none is asked."""
    cloud_endpoint: str = ""
    """Address of the metadata service, such as http://169.254.169.254; empty: that one."""
    cloud_period_seconds: Seconds = 30.0
    """Pause between two questions to the metadata service."""
    cloud_notice_seconds: Seconds = 86400.0
    """How long ahead a notice keeps new work away; an earlier one is only shown."""
    catalogue_overrides_path: str = ""
    """YAML file with the user's changes to the fault catalogue; empty: there are none."""
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
