"""Figures to move by hand, live in JupyterLab and on a published page. They load on first use."""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "SoftDictionary": "lookup",
    "Arrows": "lookup",
    "EditKV": "lookup",
    "WeightedSum": "lookup",
    "Bottleneck": "bottleneck",
    "MinimumSteps": "minimum_steps",
    "DecoderSteps": "decoder_steps",
    "Reorder": "self_attention",
    "TokenPlane": "self_attention",
    "Progress": "progress_panel",
    "Retrain": "retrain",
    "HeadExplorer": "head_explorer",
    "MaskPainter": "mask_painter",
    "SinusoidImage": "positions_figures",
    "DotsByDistance": "positions_figures",
    "ScoreScale": "scaling",
    "DepthGradient": "depth",
    "NormRow": "depth",
    "Translator": "encoder_decoder",
    "DataFlow": "encoder_decoder",
    "Budget": "budget",
    "NextToken": "decoder_only",
    "KeyValueCache": "decoder_only",
    "PatternExplorer": "cost_figures",
    "OnlineSoftmax": "cost_figures",
    "CostCurves": "cost_figures",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"There is no figure {name!r}; there are: {', '.join(_WHERE)}.")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return list(_WHERE)
