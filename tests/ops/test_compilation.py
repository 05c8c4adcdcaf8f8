"""Kernels compile for a GPU, without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs Triton")
SCRIPT = Path(__file__).parent / "compile_launches.py"


@pytest.mark.parametrize("case", ["one-row", "rows-in-pairs", "masked", "short-rows", "around-the-fft", "cross"])
def test_every_launch_of_a_layer_compiles(case: str, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, str(SCRIPT), case], env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert len(run.stdout.split()) >= 6, run.stdout
