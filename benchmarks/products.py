"""What one core gives in a product of MiniLM's size, the ceiling of `minilm.py`: `python benchmarks/products.py`."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from afterword.kernels import _pack, _packed_linear, _seconds


def main() -> None:
    """Print GFLOP/s of a (2048, 384) by (384, 1536) product, packed for oneDNN and plain."""
    torch.set_num_threads(1)
    work = 2 * 2048 * 384 * 1536 / 1e9
    for dtype in (torch.float32, torch.bfloat16):
        x, w = torch.randn(2048, 384).to(dtype), torch.randn(1536, 384).to(dtype)
        rates = [work / _seconds(call) for call in (_packed(x, w), lambda x=x, w=w: F.linear(x, w))]
        print(f"{dtype}: {rates[0]:.0f} GFLOP/s packed, {rates[1]:.0f} plain")


def _packed(x: torch.Tensor, w: torch.Tensor):
    packed = _pack(w)
    return lambda: _packed_linear(x, packed, None)


if __name__ == "__main__":
    with torch.no_grad():
        main()
