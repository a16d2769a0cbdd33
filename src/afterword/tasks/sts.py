"""Semantic textual similarity: STS12 to STS16, STS-B and SICK-R as SentEval scores them, and seven Chinese sets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .pairs import Pairs, ScoredPairs
from .published import sample_note
from .rows import Source

SETS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
FORMS = {"senteval": "en/sts", "raw": "en/sts_raw"}


class Sts(Pairs):
    """One of the seven sets: the pairs of its test split in SentEval's form, scored as `Pairs` describes.

    Source: Agirre et al. 2012-2016, Cer et al. 2017, Marelli et al. 2014. The protocol is that of BeLLM (section 4,
    "Evaluation Metrics") and Ditto (appendix A.2): SentEval, setting "all"; STS13 is without SMT, as there. No
    regression is trained on STS-B or SICK-R: the score is the correlation on their test split.
    """

    group = "sts"


class StsRaw(Sts):
    """The same pairs in the organisers' own text, cased and not tokenised, as in MTEB."""

    group = "sts-raw"


class StsDev(Sts):
    """The dev split of STS-B or SICK-R, for `tune`."""

    group = "sts-dev"


@dataclass(frozen=True)
class ChineseSts(Pairs):
    """An STS set of C-MTEB on a local file, scored as `Pairs` describes; a note says if the file is a sample.

    ReBA's tables report Pearson's correlation, which is among the metrics.

    Args:
        rows: number of pairs in C-MTEB's set.
    """

    rows: int = 0

    group = "zh-sts"
    languages = ("cmn-Hans",)

    def load(self, source: Source) -> ScoredPairs:
        """Read the pairs, as `Pairs.load`."""
        pairs = super().load(source)
        note = sample_note(f"C-MTEB's {self.name}", len(pairs.gold), self.rows or None)
        return replace(pairs, notes=(note,) if note else ())


def sts(
    name: str, text: Literal["senteval", "raw"] = "senteval", split: Literal["test", "dev", "train"] = "test"
) -> Sts:
    """One of the seven sets.

    Args:
        name: one of `SETS`.
        text: "senteval" is Moses-tokenised and, except for SICK-R, lower case; "raw" is the organisers' own text.
        split: only STS-B and SICK-R have splits other than "test".

    >>> sts("STSB", text="raw", split="dev")
    StsDev(name='STSB.raw.dev', file='en/sts_raw/stsb.dev')
    """
    kind = StsDev if split != "test" else StsRaw if text == "raw" else Sts
    parts = [name, *([text] if text == "raw" else []), *([split] if split != "test" else [])]
    return kind(".".join(parts), f"{FORMS[text]}/{name.lower()}.{split}")


TASKS: tuple[Pairs, ...] = (
    *(sts(name) for name in SETS),
    *(sts(name, text="raw") for name in SETS),
    *(sts(name, split="dev") for name in ("STSB", "SICKR")),
    ChineseSts("ATEC", "zh/sts/atec.test", 20_000),
    ChineseSts("BQ", "zh/sts/bq.test", 10_000),
    ChineseSts("LCQMC", "zh/sts/lcqmc.test", 12_500),
    ChineseSts("PAWSX", "zh/sts/pawsx.test", 2_000),
    ChineseSts("STSB-zh", "zh/sts/stsb.test", 1_361),
    ChineseSts("AFQMC", "zh/sts/afqmc.dev", 4_316),
    ChineseSts("QBQTC", "zh/sts/qbqtc.test", 5_000),
)
