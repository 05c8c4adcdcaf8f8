"""Where a result was measured: hardware, versions and commit."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

# Tells a process how many share the machine with it; results say so, since it spoils their seconds.
JOBS = "ORCHID_JOBS"
# States the commit where the checkout cannot tell.
COMMIT = "ORCHID_COMMIT"


def hardware(device: torch.device) -> dict[str, Any]:
    """Return what the numbers depend on besides the program."""
    facts: dict[str, Any] = {"device": device.type, "cpu": _cpu_name(), "threads": torch.get_num_threads()}
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
        facts["cuda"] = torch.version.cuda
    if jobs := os.environ.get(JOBS):
        facts["jobs"] = int(jobs)
    return facts


def commit() -> str | None:
    """Return the commit of the checkout this package lies in, "-dirty" when it is changed; None outside one."""
    root = Path(__file__).resolve().parents[3]
    if stated := os.environ.get(COMMIT):  # a copy of the tree may bring along a repository that is not its own
        return stated
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        changed = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
