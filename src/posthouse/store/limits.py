"""How long the store waits for a database, and how many connections it keeps."""

from typing import Final

STATEMENT_TIMEOUT_S: Final = 10
LOCK_TIMEOUT_S: Final = 5
CONNECT_TIMEOUT_S: Final = 5
IDLE_IN_TRANSACTION_TIMEOUT_S: Final = 30
ANSWER_TIMEOUT_S: Final = 15
"""For drivers that wait for an answer without end: longer than the server's own limits."""

CALL_TIMEOUT_S: Final = 20
"""After this a caller stops waiting, whatever the driver does: longer than every limit above it."""

POOL_SIZE: Final = 4
