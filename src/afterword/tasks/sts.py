"""Semantic textual similarity in English: STS12 to STS16, STS-B and SICK-R, as SentEval scores them."""

from __future__ import annotations

from typing import Literal

from .pairs import Pairs

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


TASKS: tuple[Sts, ...] = (
    *(sts(name) for name in SETS),
    *(sts(name, text="raw") for name in SETS),
    *(sts(name, split="dev") for name in ("STSB", "SICKR")),
)
