"""ALTER TABLE … MODIFY SETTING and RESET SETTING: the definition that a table has afterwards.

Such an ALTER is not replicated: every server has its own settings of a table (ClickHouse:
StorageReplicatedMergeTree.cpp, `alter`; MergeTreeData.cpp, `checkAlterIsPossible`).
"""

from __future__ import annotations

from dataclasses import replace

from replica.commands import AlterSettings, CreateTable
from replica.errors import BadArguments, ReadonlySetting
from replica.settings import SETTINGS, MergeTreeSettings, nearest


def altered(definition: CreateTable, command: AlterSettings) -> CreateTable:
    """The definition with the settings that the command asks for; those that stay keep their place.

    Raises UnknownSetting, BadArguments for a value that does not fit and for the reset of a name that is no setting,
    and ReadonlySetting for a setting that a table has for good, unless it is given the value that it has.
    """
    before = MergeTreeSettings.from_text(definition.settings)
    settings = {**definition.settings, **command.modified}
    after = MergeTreeSettings.from_text(settings)
    for name in command.modified:
        if SETTINGS[name].readonly and getattr(after, name) != getattr(before, name):
            raise _readonly(name)
    for name in command.reset:
        if name not in SETTINGS:
            raise BadArguments(f"Cannot reset setting {name}, which does not exist: {nearest(name)}")
        if SETTINGS[name].readonly:
            raise _readonly(name)
        settings.pop(name, None)
    MergeTreeSettings.from_text(settings)
    return replace(definition, settings=settings)


def _readonly(name: str) -> ReadonlySetting:
    return ReadonlySetting(f"Setting {name} is readonly: it can only be given when the table is created")
