import subprocess
import sys

PROGRAM = """
import sys
from outrider import config, service
from outrider.kube import events, informer, leader, transport, workqueue
from outrider.telemetry import logs, traces
pages = int(open("/proc/self/statm").read().split()[1])
typed = [name for name in sys.modules if name.partition(".")[0] in ("kubernetes", "pydantic", "requests")]
print(pages * 4096 / 1e6, len(typed))
"""


def test_what_every_component_imports_stays_small_and_loads_no_library_that_pods_need_not() -> None:
    """41 MB measured; the node agent runs on every node and may use 64 with its child process."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    megabytes, typed = done.stdout.split()
    assert float(megabytes) < 48
    assert typed == "0"
