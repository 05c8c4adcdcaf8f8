"""The ``orchid`` command with its kernels in the mended interpreter: a script, so that torchrun can start it."""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

from interpreter import like_a_gpu

from orchid.__main__ import main

if __name__ == "__main__":
    with like_a_gpu():
        main()
