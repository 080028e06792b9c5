"""Outrider inside a training pod: step beacon and checkpoints on request. Nothing here can stop the job.

Scripts need no change. One that can save at any step may say so::

    from outrider_inpod import register_checkpoint
    register_checkpoint(lambda: save(model, optimizer, "/checkpoints/latest.pt"))
"""

from __future__ import annotations

from .registry import register_checkpoint

__all__ = ["register_checkpoint"]
