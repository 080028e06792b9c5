"""Findings, verdicts and scores: pure judgement of hardware evidence."""
