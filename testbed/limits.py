"""Limits of the kernel that many real nodes on one machine reach before its memory."""

from pathlib import Path

from testbed.errors import MissingPrerequisiteError
from testbed.say import Say

_SYSCTL = Path("/proc/sys")
_WANTED = {
    # containerd, kubelet and runc hold some 14 inotify instances a node; the usual default is 128 for a user.
    "fs.inotify.max_user_instances": 8192,
    "fs.inotify.max_user_watches": 524288,
}


def ensure(say: Say, sysctl: Path = _SYSCTL) -> None:
    """Raise what is too low, until the machine's next boot, and say so.

    Raises:
        MissingPrerequisiteError: the kernel refused; the message names the command.
    """
    for name, wanted in _WANTED.items():
        file = sysctl / name.replace(".", "/")
        present = int(file.read_text())
        if present >= wanted:
            continue
        try:
            file.write_text(str(wanted))
        except OSError as error:
            message = f"{name} is {present}, too low for several nodes ({error}): run `sysctl -w {name}={wanted}`"
            raise MissingPrerequisiteError(message) from error
        say(f"raised {name} from {present} to {wanted} until the next boot")
