"""A small real training job: data-parallel PyTorch on CPU that checkpoints and resumes.

Knows nothing about the platform it runs on. Start it with torchrun; every rank prints one JSON line a step.
The global batch of a step depends on the step's number alone, whatever the number of ranks, so the loss curve of a run
that was interrupted can be laid over that of one that was not.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = 32
GLOBAL_BATCH = 96  # divides evenly among 1, 2, 3, 4, 6 or 8 ranks


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600, help="optimizer steps of the whole run")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--step-seconds", type=float, default=0.25, help="pause in each step; a stand-in for real work")
    return parser.parse_args()


def batch(step: int, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's share of the step's global batch: a noisy function of random points, to be learned."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(GLOBAL_BATCH, FEATURES, generator=generator)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True)) + 0.1 * torch.randn(GLOBAL_BATCH, 1, generator=generator)
    return inputs[rank::world_size], targets[rank::world_size]


def build_model() -> nn.Module:
    """Build the same initial network on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Store a checkpoint; whoever reads meanwhile sees the old one or the new one, whole."""
    temporary = path.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, temporary)
    os.replace(temporary, path)


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restore the last checkpoint and return its step, 0 where there is none."""
    if not path.exists():
        return 0
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return int(checkpoint["step"])


def main() -> None:
    """Train from the last checkpoint to the last step."""
    arguments = parse_arguments()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    path = Path(os.environ["CKPT_DIR"]) / "latest.pt"
    path.parent.mkdir(parents=True, exist_ok=True)

    network = build_model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    resumed_from = load(path, network, optimizer)
    model = DistributedDataParallel(network)

    for step in range(resumed_from + 1, arguments.steps + 1):
        inputs, targets = batch(step, rank, world_size)
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(arguments.step_seconds)

        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss)
        line = {
            "step": step,
            "loss": round(mean_loss.item() / world_size, 6),
            "rank": rank,
            "world_size": world_size,
            "resumed_from": resumed_from,
            "unix": round(time.time(), 3),
        }
        print(json.dumps(line), flush=True)
        if rank == 0 and step % arguments.checkpoint_every == 0:
            save(path, network, optimizer, step)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
