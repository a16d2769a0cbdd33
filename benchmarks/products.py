"""What one core gives in a product of MiniLM's size, the ceiling of `minilm.py`: `python benchmarks/products.py`."""

from __future__ import annotations

import torch

from afterword.backbone.linear_probe import Shape, choose


def main() -> None:
    """Print GFLOP/s of each kernel at MiniLM's shapes, and what the probe chose and why."""
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        for shape in (Shape(384, 384), Shape(384, 1536), Shape(1536, 384)):
            seen = choose(shape, dtype, also=("plain", "packed"))
            work = 2 * 256 * shape.inputs * shape.outputs / 1e9
            rates = ", ".join(
                f"{work / seconds:.0f} GFLOP/s {kernel} ({'keeps' if seen.keeps[kernel] else 'loses'} the bits)"
                for kernel, seconds in seen.seconds.items()
            )
            print(f"{str(dtype).removeprefix('torch.')} {shape}: {rates}; chosen: {seen.kernel}")


if __name__ == "__main__":
    main()
