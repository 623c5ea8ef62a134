"""The library behind the course: one idea per file, each readable from top to bottom.

Modules load on first use, so `import course_lib` costs nothing and does not load torch.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

__version__ = "0.1.0"
_MODULES = sorted(module.name for module in pkgutil.iter_modules(__path__))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"course_lib has no module {name!r}; it has: {', '.join(_MODULES)}")


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
