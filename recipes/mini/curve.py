"""The loss curve: one JSON line per logged step, and its plot."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mini.corpus import SHARES
from mini.packing import no_space, write_text


def keep_log_until(log: Path, step: int) -> None:
    """Drop the logged lines of steps that a killed run did and that will now be done again."""
    if log.is_file():
        rows = [line for line in log.read_text().splitlines() if json.loads(line)["step"] <= step]
        write_text(log, "".join(row + "\n" for row in rows))


def log_row(log: Path, row: dict[str, float]) -> None:
    """Append a line to the loss curve and show it."""
    try:
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        raise no_space(error, log) from error
    print("  ".join(f"{k} {v:.4g}" for k, v in row.items()), file=sys.stderr, flush=True)


def plot(log: Path, picture: Path) -> None:
    """Draw the loss curve; without matplotlib say so and go on."""
    try:
        import matplotlib as mpl

        mpl.use("agg")  # no screen is needed
        import matplotlib.pyplot as plt
    except ImportError:
        print("no plot: pip install matplotlib", file=sys.stderr)
        return
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    figure, axes = plt.subplots(figsize=(7, 4))
    trained = [row for row in rows if "loss" in row]
    axes.plot([r["step"] for r in trained], [r["loss"] for r in trained], lw=0.7, label="train")
    for name in SHARES:
        held = [row for row in rows if f"{name}_nats" in row]
        axes.plot([r["step"] for r in held], [r[f"{name}_nats"] for r in held], "o-", ms=3, label=name)
    axes.set(xlabel="step", ylabel="nats per token", title="afterword-mini")
    axes.legend()
    figure.savefig(picture, dpi=120, bbox_inches="tight")
    plt.close(figure)
