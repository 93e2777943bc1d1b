"""The settings schema: every setting is declared once, as a field of a record made with `setting`."""

from paceline.settings.setting import Setting, check, pick, read, setting, settings_of
from paceline.settings.text import read_any, read_time, read_toml, shown

__all__ = [
    "Setting",
    "check",
    "pick",
    "read",
    "read_any",
    "read_time",
    "read_toml",
    "setting",
    "settings_of",
    "shown",
]
