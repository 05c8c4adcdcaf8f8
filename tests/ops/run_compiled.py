"""Compile a kernel for a GPU, run what the compiler wrote (``ptx.py``), and compare with what the interpreter wrote.

Usage: run_compiled.py MODULE KERNEL LAUNCH OUTPUT ..., the launch a file that ``test_compilation.py`` has kept.
"""

import importlib
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np
import torch
from compile_launches import compiled_launch
from ptx import Program

if __name__ == "__main__":
    module, name, file, *outputs = sys.argv[1:]
    kernel = getattr(importlib.import_module(module), name).function
    launch = torch.load(file, weights_only=True)
    binary, source, given = compiled_launch(kernel, launch["args"], launch["named"])
    if "wgmma" in binary.asm["ptx"]:  # which ``ptx.py`` does not know: as an older generation has it
        binary, source, given = compiled_launch(kernel, launch["args"], launch["named"], 80)
    expected = {output: given[output].clone() for output in outputs}
    for output in outputs:
        given[output].fill_(torch.nan)
    parameters = []
    for parameter in (p.name for p in kernel.params if source.signature[p.name] != "constexpr"):
        value = given[parameter]
        if isinstance(value, torch.Tensor):
            value = value.data_ptr()
        parameters.append(int(np.float32(value).view(np.uint32)) if isinstance(value, float) else int(value))
    program, grid = Program(binary.asm["ptx"], launch["named"].get("num_warps", 4)), launch["grid"]
    for place in itertools.product(*map(range, grid)):
        program.run(place, grid, parameters)
    for output in outputs:
        ours, theirs = given[output].double(), expected[output].double()
        written = ~ours.isnan()
        error = (ours - theirs)[written].norm() / theirs[written].norm()
        print(output, float(error), float(written.double().mean()))
