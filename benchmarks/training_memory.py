"""One training in a process of its own: how far memory rises above the loaded model.

    python benchmarks/training_memory.py ranking 64      (or cached_ranking 512)

Two steps of sentence-transformers' trainer with every weight trained; the optimiser's state, which is the same on
every side, is there before the mark of the highest resident memory is reset (Linux).
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path

from alone import resident
from measure import apart

LOSSES = ("ranking", "cached_ranking")


def measured(loss: str, batch: int) -> float:
    """Bytes above the loaded model and its optimiser's state."""
    from training import ours, rows, trainer
    from transformers import TrainerCallback

    from afterword.train.losses import make_loss
    from afterword.train.settings import Settings

    class Mark(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 1:  # the first step has made the optimiser's state
                gc.collect()
                ctypes.CDLL(None).malloc_trim(0)  # glibc's
                Path("/proc/self/clear_refs").write_text("5")
                self.before = resident("VmRSS")

    model, mark = ours("afterword-mini"), Mark()
    running = trainer(model, rows(2 * batch), batch, 2, make_loss(model, Settings(loss=loss, mini_batch=32)))
    running.add_callback(mark)
    running.train()
    return float(resident("VmHWM") - mark.before)


def alone(loss: str, batch: int) -> float:
    """The same, in a process of its own."""
    found: float = json.loads(apart(__file__, loss, str(batch)))
    return found


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in LOSSES:
        raise SystemExit(f"usage: python benchmarks/training_memory.py {'|'.join(LOSSES)} BATCH")
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
