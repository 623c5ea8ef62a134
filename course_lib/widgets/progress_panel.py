"""What you have done so far, and a way to start a unit again."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets

from .. import exercises, progress


class Progress(ipywidgets.VBox):
    """The table of exercises, a choice of unit, and a button that forgets what was done in it."""

    def __init__(self) -> None:
        self.view = ipywidgets.HTML()
        self.unit = ipywidgets.Dropdown(
            options=list(exercises.UNITS), description="unit", tooltip="unit to start again"
        )
        self.button = ipywidgets.Button(description="start again", tooltip="forget what was done in this unit")
        self.button.on_click(self.restart)
        self.refresh()
        super().__init__([self.view, ipywidgets.HBox([self.unit, self.button])])

    def refresh(self) -> None:
        """Show the file as it is now."""
        self.view.value = f"<pre>{escape(progress.table())}</pre>"

    def restart(self, _: Any = None) -> None:
        """Forget the chosen unit; the notebooks themselves are left alone."""
        progress.restart(self.unit.value)
        self.refresh()

    def __repr__(self) -> str:
        return progress.table()
