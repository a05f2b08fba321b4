"""What a running process says about itself: one line an event on standard error, with time and level."""

from __future__ import annotations

import json
import logging
import sys

from posthouse.cli.moments import iso


class _Lines(logging.Formatter):
    """`2026-07-30T12:02:11.500000Z WARNING posthouse.worker: route main is held …`"""

    def format(self, record: logging.LogRecord) -> str:
        said = " ".join(record.getMessage().split("\n"))
        line = f"{iso(record.created)} {record.levelname} {record.name}: {said}"
        # A fault in our own code: whoever mends it needs its lines as they are.
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Documents(logging.Formatter):
    """One JSON object a line, for a collector of logs."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "at": iso(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


def log_to_stderr(*, as_json: bool) -> None:
    """Sets up logging for a process that is Posthouse and nothing else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Documents() if as_json else _Lines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("posthouse").setLevel(logging.INFO)
