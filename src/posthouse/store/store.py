"""The store, whole: one object a process, handed to whoever needs a part of it."""

from __future__ import annotations

from posthouse.core.suppression import FOR_GOOD, SuppressionPolicy
from posthouse.store.alerts import Alerts
from posthouse.store.backlog import BacklogTable
from posthouse.store.blobs import Blobs
from posthouse.store.control import Control
from posthouse.store.database import Database
from posthouse.store.events import Events
from posthouse.store.group_health import GroupHealth
from posthouse.store.ledger import Ledger
from posthouse.store.log_cursors import LogCursors
from posthouse.store.operations import Operations
from posthouse.store.pacing import Pacing
from posthouse.store.queue import Queue
from posthouse.store.retention import Retention
from posthouse.store.suppressions import Suppressions
from posthouse.store.sweeps import Sweeps
from posthouse.store.switchboard import Switchboard
from posthouse.store.webhook_tokens import WebhookTokens


class Store:
    """The parts of the store over one database."""

    def __init__(self, database: Database, suppression: SuppressionPolicy = FOR_GOOD) -> None:
        self.database = database
        self.queue = Queue(database, suppression)
        self.sweeps = Sweeps(database)
        self.blobs = Blobs(database)
        self.control = Control(database)
        self.alerts = Alerts(database)
        self.backlog = BacklogTable(database)
        self.events = Events(database, suppression)
        self.suppressions = Suppressions(database)
        self.group_health = GroupHealth(database)
        self.ledger = Ledger(database)
        self.operations = Operations(database)
        self.pacing = Pacing(database)
        self.switches = Switchboard(database)
        self.retention = Retention(database)
        self.webhook_tokens = WebhookTokens(database)
        self.log_cursors = LogCursors(database)
