"""Grafana's boards in k8s/components/monitoring/boards, made of boards.yaml beside them.

python -m tools.boards
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "k8s" / "components" / "monitoring"
WIDTH, HEIGHT, PER_ROW = 8, 8, 3
SOURCE = {"type": "prometheus", "uid": "${source}"}


def make_boards() -> dict[str, str]:
    """File names and what is in them."""
    boards = yaml.safe_load((FOLDER / "boards.yaml").read_text())
    return {f"signalbox-{name}.json": _text(_board(name, panels)) for name, panels in boards.items()}


def _board(name: str, panels: list[dict[str, Any]]) -> dict[str, Any]:
    variable = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"signalbox-{name}",
        "title": f"signalbox: {name}",
        "tags": ["signalbox"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": [_panel(index, panel) for index, panel in enumerate(panels)],
    }


def _panel(index: int, panel: dict[str, Any]) -> dict[str, Any]:
    queries = [
        {
            "refId": chr(ord("A") + number),
            "datasource": SOURCE,
            "legendFormat": legend,
            "expr": query,
            "exemplar": "_bucket[" in query,
        }
        for number, (legend, query) in enumerate(panel["queries"].items())
    ]
    row, column = divmod(index, PER_ROW)
    return {
        "id": index + 1,
        "title": panel["title"],
        "type": "timeseries",
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
        "targets": queries,
    }


def _text(board: dict[str, Any]) -> str:
    return json.dumps(board, indent=1) + "\n"


def main() -> None:
    """Writes the files."""
    for name, text in make_boards().items():
        (FOLDER / "boards" / name).write_text(text)


if __name__ == "__main__":
    main()
