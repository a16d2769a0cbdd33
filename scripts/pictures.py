"""Draw the figures of the documentation, each for light and for dark pages: ``make pictures DATA=../shared/data``.

A figure is the last of its commands of ``afterword`` below, a line each; those before make what it draws, in a folder
TMP that is removed, where capitol.txt holds Ditto's sentence. Some figures are drawn by `drawings` instead. DATA holds
the evaluation sets, as docs/evaluate.md says. With names, only these figures are drawn:
``python scripts/pictures.py DATA turning-point``.
"""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import drawings

from afterword.cli import main

TO = Path(__file__).parent.parent / "docs" / "pictures"
MOST = 100_000  # bytes of a file
BANK = "The bank was steep."
CAPITOL = "For those who follow social media transitions on Capitol Hill, this will be a little different."
COMMANDS = {
    "turning-point": "analyse turning-point -m smollm2 -m gemma3 --dev DATA/en/sts/stsb.dev.jsonl.gz --template bellm",
    "dependency": "analyse dependency -m smollm2 -m gemma3 -m minilm -m mpnet "
    "--pairs DATA/en/sts/stsb.test.jsonl.gz --method classical",
    "heads": "analyse heads -m minilm --dev DATA/en/sts/stsb.dev.jsonl.gz --head 1-10",
    "isotropy": "analyse isotropy -m minilm --pairs DATA/en/sts/stsb.test.jsonl.gz "
    "--method classical:states=first_last --method ditto:head=1-10 --method ditto:head=1-9",
    "lengths": "analyse lengths -m gemma3 --tasks zh-sts --data DATA --max-length 512",
    "reba-attention": f"analyse attention -m smollm2 --method reba --layer 20 '{BANK}'",
    "impact": "analyse impact -m minilm -i TMP/capitol.txt --corpus DATA/en/pud/en_pud.jsonl.gz",
    "ditto-attention": f"analyse attention -m minilm --head 1-9 --head 6-11 '{CAPITOL}'",
}
"""The commands of each figure; further options of the last draw it to docs/pictures/NAME.svg and NAME-dark.svg."""

DRAWN = {"looking-back": drawings.looking_back, **{name: partial(drawings.scheme, name) for name in drawings.SCHEMES}}
"""What draws the other figures, for "light" or "dark" pages."""


def draw(data: str, names: list[str]) -> int:
    """Draw these figures, or all.

    Returns:
        0, or the exit code of the first command that failed.
    """
    TO.mkdir(exist_ok=True)
    if unknown := set(names) - {*COMMANDS, *DRAWN}:
        sys.exit(f"no figure {', '.join(sorted(unknown))}: there are {', '.join((*COMMANDS, *DRAWN))}")
    for name in names or (*COMMANDS, *DRAWN):
        if name in DRAWN:
            print(name, flush=True)
            (TO / f"{name}.svg").write_text(DRAWN[name]("light"), "utf-8")
            (TO / f"{name}-dark.svg").write_text(DRAWN[name]("dark"), "utf-8")
            continue
        with TemporaryDirectory() as made:
            (Path(made) / "capitol.txt").write_text(f"{CAPITOL}\n", "utf-8")
            commands = COMMANDS[name].replace("DATA", data).replace("TMP", made)
            lines = [shlex.split(line) for line in commands.splitlines()]
            lines[-1] += ["--plot", str(TO / f"{name}.svg"), "--dark"]
            for words in lines:
                print(f"{name}: afterword {shlex.join(words)}", flush=True)
                if code := main(words):
                    return code
    large = [path.name for path in TO.glob("*.svg") if path.stat().st_size > MOST]
    return 1 if large and print(f"over {MOST} bytes: {', '.join(large)}") is None else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("give the folder of the data: python scripts/pictures.py DATA [NAME ...]")
    sys.exit(draw(sys.argv[1], sys.argv[2:]))
