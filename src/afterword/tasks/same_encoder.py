"""Which results are of one encoder, and what the others differ in: only such results share a row and an average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .results import Result

OTHER = "other libraries or another encoder"
"""What is told of results that do not say in what their encoders differ."""


def by_encoder(results: Sequence[Result]) -> list[list[Result]]:
    """Results grouped by encoder, in their order.

    Encoders are told apart by identity: by what their vectors depend on, but for the versions of libraries. Results of
    older versions hold no identity. Of those, only equal fingerprints, which depend on library versions too, are
    taken for the same.
    """
    known = {str(r.about.get("encoder")): str(r.about["identity"]) for r in results if "identity" in r.about}
    groups: dict[tuple[str, str], list[Result]] = {}
    for r in results:
        groups.setdefault(encoder_of(r.about, known), []).append(r)
    return list(groups.values())


def encoder_of(about: Mapping[str, Any], known: Mapping[str, str] | None = None) -> tuple[str, str]:
    """What tells an encoder apart: its identity, or its fingerprint without one; and the texts that it is fitted on.

    Args:
        about: what is saved with a result.
        known: identities by fingerprint, for results that hold none.
    """
    fingerprint = str(about.get("encoder"))
    return str(about.get("identity") or (known or {}).get(fingerprint, fingerprint)), str(about.get("fit"))


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The settings that two results differ in, by name; empty if they do not say.

    Args:
        a: what is saved with the one result.
        b: what is saved with the other.

    >>> differences({"settings": {"max_length": 6, "dtype": "x"}}, {"settings": {"max_length": 9, "dtype": "x"}})
    {'max_length': ('6', '9')}
    """
    one, other = _settings(a), _settings(b)
    if not one or not other:
        return {}
    return {k: (str(one.get(k)), str(other.get(k))) for k in {**one, **other} if one.get(k) != other.get(k)}


def _settings(about: Mapping[str, Any]) -> dict[str, Any]:
    found = about.get("settings")
    if not isinstance(found, Mapping):
        return {}
    return {**found, **({"fit": str(about["fit"])[:8]} if about.get("fit") else {})}


def told_apart(encoders: Sequence[Sequence[Result]]) -> tuple[list[str], str]:
    """For each encoder what tells it from the others, as in "max_length 6"; and the names of what differs.

    Args:
        encoders: the results of each, from `by_encoder`.

    Returns:
        A text per encoder, and one for all; all are empty for a single encoder.
    """
    if len(encoders) < 2:
        return [""] * len(encoders), ""
    first, *others = [members[0].about for members in encoders]
    names = list(dict.fromkeys(name for about in others for name in differences(first, about)))
    texts = []
    for about in (first, *others):
        settings = _settings(about)
        texts.append(", ".join(f"{name} {settings.get(name)}" for name in names if settings))
    if "" in texts or len(set(texts)) < len(texts):
        texts = [f"encoder {encoder_of(about)[0][:8]}" for about in (first, *others)]
        if len(set(texts)) < len(texts):
            texts = [
                f"{text}, fit {about.get('fit')}"[:60] for text, about in zip(texts, (first, *others), strict=True)
            ]
    return texts, " and ".join(names) or OTHER
