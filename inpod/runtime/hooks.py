"""Hooks PyTorch when the job imports it, without importing it and without a line of user code.

``torch.optim.optimizer`` gets a global step post hook (``register_optimizer_step_post_hook``, since torch 2.0),
``torch.serialization`` a wrapper around ``save``. Older versions without the hook stay untouched.
"""

from __future__ import annotations

import sys

from .faults import Guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from .session import Session

    OnImport = Callable[[ModuleType], None]


class ImportWatcher:
    """A finder that runs a callback after a module's own import; it finds nothing itself and leaves when done."""

    def __init__(self, guard: Guard, wanted: dict[str, OnImport]) -> None:
        self._guard = guard
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders know, with the callback behind the loader's ``exec_module``."""
        if name not in self._wanted:
            return None
        spec = self._ask_others(name, path, target)
        if spec is not None and spec.loader is not None:
            self._guard.call(self._follow, spec.loader, self._wanted.pop(name))
            if not self._wanted:
                sys.meta_path.remove(self)
        return spec

    def _ask_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find_spec is None else find_spec(name, path, target)
            if spec is not None:
                return spec
        return None

    def _follow(self, loader: Any, on_import: OnImport) -> None:
        # On the instance, so that module.__loader__ stays what the other finders chose (inspect, pickle, dynamo).
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._guard.call(on_import, module)

        loader.exec_module = exec_module


class Hooks:
    """The callbacks, around one Session that is made when PyTorch appears."""

    def __init__(self, directory: str, guard: Guard) -> None:
        self._directory = directory
        self._guard = guard
        self._session: Session | None = None

    def on_optimizer_module(self, module: ModuleType) -> None:
        """Count the steps of all optimizers of this process."""
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is None:
            return  # torch before 2.0
        guard, on_step = self._guard, self.session().on_step

        def after_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            guard.call(on_step, optimizer)

        register(after_step)

    def on_serialization_module(self, module: ModuleType) -> None:
        """Record finished saves. ``torch.save`` is this function: torch/__init__ imports it from here."""
        from functools import wraps

        save, guard, session = module.save, self._guard, self.session()

        @wraps(save)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            started: list[Any] = []
            guard.call(lambda: started.append(session.before_save(args, kwargs)))
            result = save(*args, **kwargs)
            if started:
                guard.call(session.after_save, started[0])
            return result

        module.save = recorded  # type: ignore[attr-defined]  # a module of torch, known only as a module

    def session(self) -> Session:
        """Return the process's session."""
        if self._session is None:
            from .session import Session

            self._session = Session(self._directory)
        return self._session


def install(directory: str) -> None:
    """Watch for PyTorch; hook it at once where it is there already (a .pth file may have imported it)."""
    guard = Guard(directory)
    hooks = Hooks(directory, guard)
    wanted = {
        "torch.optim.optimizer": hooks.on_optimizer_module,
        "torch.serialization": hooks.on_serialization_module,
    }
    for name in [name for name in wanted if name in sys.modules]:
        guard.call(wanted.pop(name), sys.modules[name])
    if wanted:
        sys.meta_path.insert(0, ImportWatcher(guard, wanted))  # type: ignore[arg-type]  # the protocol also asks for methods that nobody calls
