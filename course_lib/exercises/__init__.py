"""The exercises of the course, one file per unit: u04.py holds 04.1, 04.2, … in its tuple EXERCISES."""

from __future__ import annotations

import importlib
import pkgutil

from .declare import Exercise

UNITS = tuple(sorted(m.name[1:] for m in pkgutil.iter_modules(__path__) if m.name[0] == "u" and m.name[1:].isdigit()))


def of_unit(unit: str) -> tuple[Exercise, ...]:
    """All exercises of a unit, in their order."""
    if unit not in UNITS:
        raise ValueError(f"There are no exercises for unit {unit!r}; there are for: {', '.join(UNITS)}.")
    return importlib.import_module(f"{__name__}.u{unit}").EXERCISES


def find(id_or_name: str) -> Exercise:
    """The exercise "04.2", or the one whose answer has this name."""
    unit = id_or_name.partition(".")[0]
    for exercise in of_unit(unit) if unit.isdigit() else (e for u in UNITS for e in of_unit(u)):
        if id_or_name in (exercise.id, exercise.name):
            return exercise
    raise ValueError(
        f'No exercise is called {id_or_name!r}. Write the number too, as the notebook does: check(answer, "04.2").'
    )
