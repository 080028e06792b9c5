"""Loaded by every Python process of the pod, since /outrider/py leads PYTHONPATH.

Two duties. Where the process is a training rank, watch for the import of PyTorch (``outrider_inpod.hooks``). Then run
the ``sitecustomize`` that this one hides, the image's or the user's, exactly as Python would have. Processes without
RANK (shells' helpers, pip, the torchrun agent itself) import nothing more than this file.
"""

import os
import sys


def _watch() -> None:
    directory = os.environ.get("OUTRIDER_DIR")
    if not directory or "RANK" not in os.environ:
        return
    try:
        from outrider_inpod import hooks  # type: ignore[import-not-found]  # named so only once installed

        hooks.install(directory)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with us, the job must start
        _note(directory, error)


def _note(directory: str, error: Exception) -> None:
    try:
        with open(os.path.join(directory, "inpod.error"), "a") as file:
            file.write(f"sitecustomize: {type(error).__name__}: {error}\n")
    except OSError:
        return  # nowhere to say it


def _run_hidden() -> None:
    """Run the next ``sitecustomize`` on sys.path. What it raises is the user's own error and goes on to Python."""
    others = [entry for entry in sys.path if not os.path.isdir(os.path.join(entry, "outrider_inpod"))]
    # The finders themselves, since importing importlib.machinery would cost each process of the pod a millisecond.
    found = (finder.find_spec("sitecustomize", others) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    spec = next((spec for spec in found if spec is not None), None)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_watch()
_run_hidden()
