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
    "rewrite_paragraph": "Rewrite the following paragraph: {text}. The rewritten paragraph: {text}",
    "cot": 'After thinking step by step , this sentence : "{text}" means in one word:"',
    "ke": "What matters in a sentence is who does what, details add little. So this sentence : "
    '"{text}" means in one word:"',
    "promptreps": "You are an AI assistant that can understand human language.[USER]"
    'Passage: "{text}". Use one word to represent the passage in a retrieval task. '
    'Make sure your word is in lowercase.[ANSWER]The word is: "',
    "promptreps_query": "You are an AI assistant that can understand human language.[USER]"
    'Query: "{text}". Use one word to represent the query in a retrieval task. '
    'Make sure your word is in lowercase.[ANSWER]The word is: "',
    "ponte": 'Express this text "{text}" in one word in terms of {condition}:',
}
"""Named templates: PromptEOL (Jiang et al. 2023), PromptBERT's three (Jiang et al. 2022), AnglE's prompt A, BeLLM's of
the code and of the paper (section 3.3), its conditional one (section 5.1), Echo's two (Springer et al. 2025; the second
is its author's zero-shot prompt), Pretended CoT's (Zhang et al. 2024), one with the intent of their Knowledge
Enhancement, PromptReps' two (Zhuang et al. 2024, for chat models), and PonTE's (arXiv 2504.16411)."""

STATES = {"cot": "layer:-2", "ke": "layer:-2"}
"""The hidden states that a template was published with, where they are not those of the last layer."""
