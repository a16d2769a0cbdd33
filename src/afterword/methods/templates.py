"""The named templates."""

from __future__ import annotations

TEMPLATES = {
    "eol": 'This sentence : "{text}" means in one word:"',
    "promptbert": 'This sentence of "{text}" means[MASK].',
    "promptbert_colon": 'This sentence : "{text}" means[MASK].',
    "promptbert_quote": "This sentence : ' {text} ' means[MASK].",
    "angle": 'Summarize sentence "{text}" in one word:"',
    "bellm": 'The representative word for sentence {text} is:"',
    "bellm_paper": "The representative word for {text} is:”",
    "csts": "Given the context {condition}, summarize the sentence {text} in one word:”",
    "rewrite": "Rewrite the sentence: {text}, rewritten sentence: {text}",
}
"""Named templates: PromptEOL (Jiang et al. 2023), PromptBERT's three (Jiang et al. 2022), AnglE's prompt A, BeLLM's of
the code and of the paper (section 3.3), its conditional one (section 5.1), Echo's (Springer et al. 2025)."""
