"""Where MLflow's numbers go: the project's own SQLite file, another database, or a server; and whether it is there."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

SQLITE = "sqlite:///"
DATABASES = ("postgresql", "mysql", "mssql")  # those that MLflow takes beside SQLite
LOCK_SECONDS = 120.0  # for the first process to build the database: 3 s, 20 on a busy disk


def tracking_uri(root: Path) -> str:
    """Return MLFLOW_TRACKING_URI where it is set, else the SQLite file at the project's root."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{root}/mlflow.db"


def check_database(uri: str) -> None:
    """Raise ConnectionError where a database cannot be used: MLflow would try again for 100 seconds.

    A server's address is not looked at.
    """
    from sqlalchemy import create_engine  # slow to import
    from sqlalchemy.exc import SQLAlchemyError

    try:
        if uri.startswith(SQLITE):
            with closing(sqlite3.connect(uri.removeprefix(SQLITE), timeout=LOCK_SECONDS)) as database:
                database.execute("BEGIN IMMEDIATE")
        elif uri.startswith(DATABASES):
            create_engine(uri).connect().close()
    except (sqlite3.Error, SQLAlchemyError, ImportError) as error:  # ImportError: there is no driver for it
        raise ConnectionError(f"{shown(uri)} cannot be opened: {' '.join(str(error).split())}") from None


def shown(uri: str) -> str:
    """Return the address of a database with *** for its password."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(uri).render_as_string()
    except ArgumentError:
        return "MLFLOW_TRACKING_URI"
