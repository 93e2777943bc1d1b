"""Published studies to reproduce: each is an experiment file and a module that draws the conclusions."""

from __future__ import annotations

from paceline.reproduction.study import Conclusions, Study, find_study, known_studies

__all__ = ["Conclusions", "Study", "find_study", "known_studies"]
