"""Export a layer with torch.export (dynamic batch) and to ONNX (fixed length), and compare with eager.

Needs the export extra: pip install 'orchid-torch[export]'.
"""

import tempfile
from pathlib import Path

import onnxruntime
import torch

from orchid import OrchidMixer


def main() -> None:
    mixer = OrchidMixer(d_model=16, max_length=64).eval()
    x, mask = torch.randn(2, 48, 16), torch.arange(48).expand(2, -1) < torch.tensor([[48], [30]])

    batch = torch.export.Dim("batch", min=1, max=256)
    program = torch.export.export(mixer, (x, mask), dynamic_shapes=({0: batch}, {0: batch}))
    print("torch.export, batch 5:", tuple(program.module()(torch.randn(5, 48, 16), mask[:1].repeat(5, 1)).shape))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mixer.onnx"
        torch.onnx.export(mixer, (x, mask), path, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {i.name: v.numpy() for i, v in zip(session.get_inputs(), (x, mask), strict=True)})
    print(f"ONNX against eager: {(torch.from_numpy(y) - mixer(x, mask)).abs().max():.1e}")


if __name__ == "__main__":
    main()
