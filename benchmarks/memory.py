"""How much memory a worker takes while it works through a table with very many pending rows."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from benchmarks.answering import answering_server
from posthouse.store.database import open_database
from posthouse.store.migrate import migrate

ROWS = 1_000_000
WORK_S = 15.0

_FILL = """
    WITH made AS (
        INSERT INTO email_sends (dedupe_key, fingerprint, idempotency_key, type, lane, to_address, recipients, status,
            next_try_at, expires_at, created_at, updated_at)
        SELECT 'k' || n, 'f', 'i' || n, 'default', 'default', 'p@example.com', '["p@example.com"]', 'pending',
            now(), now() + interval '1 day', now(), now()
        FROM generate_series(1, %s) AS n RETURNING id)
    INSERT INTO email_contents (send_id, body)
    SELECT id, '{"subject":"Hello","text":"' || repeat('x', 2800) || '","to":[["p@example.com"]],"version":1}' FROM made
"""


def run(database_url: str, rows: int) -> float:
    """The worker's peak resident memory in MB."""
    database = open_database(database_url, time.time)
    migrate(database)
    database.close()
    with psycopg.connect(database_url) as connection:
        connection.execute(_FILL, (rows,))
        connection.commit()
    with answering_server() as url, tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "posthouse.toml"
        config.write_text(
            f'database = "{database_url}"\nsender = "shop@example.com"\n'
            f'[routes.main]\nprovider = "http"\nurl = "{url}"\nauth = "none"\nmessage_id = "id"\nconcurrency = 64\n',
            encoding="utf-8",
        )
        worker = subprocess.Popen([sys.executable, "-m", "posthouse", "--config", str(config), "worker"])
        try:
            time.sleep(WORK_S)
            status = Path(f"/proc/{worker.pid}/status").read_text(encoding="utf-8")
        finally:
            worker.terminate()
            worker.wait()
    (peak,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak.split()[1]) / 1024
