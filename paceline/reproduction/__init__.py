"""Published studies to be made again: each a file of an experiment, and a module that sets theirs beside ours."""

from __future__ import annotations

from paceline.reproduction.study import Beside, Study, find_study, known_studies

__all__ = ["Beside", "Study", "find_study", "known_studies"]
