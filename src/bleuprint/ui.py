"""MLflow's pages in the browser, over the project's own database."""

import logging
import os
import socket
import sqlite3
import sys

from bleuprint.origin import project_root
from bleuprint.tracking import connected, tracking_uri

logger = logging.getLogger(__name__)


def serve(port: int) -> None:
    """Become MLflow's server on 127.0.0.1 over the project's database; ValueError where that cannot be."""
    root = project_root()
    uri = tracking_uri(root)
    if uri.startswith(("http:", "https:")):
        raise ValueError(f"MLFLOW_TRACKING_URI is {uri}: open that page, or unset the variable")
    check_port(port)
    try:
        with connected():
            pass  # a database that is not there yet is built under the lock, before the server's workers race for it
    except sqlite3.Error as error:
        raise ValueError(f"{uri} cannot be opened: {error}") from None
    command = ["-m", "mlflow", "server", "--backend-store-uri", uri, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--artifacts-destination", str(root / "work/mlartifacts"), "--workers", "1"]
    logger.info("MLflow on http://127.0.0.1:%d over %s; Ctrl-C ends it", port, uri)
    os.execv(sys.executable, [sys.executable, *command])


def check_port(port: int) -> None:
    """Raise ValueError where another process has the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ValueError(f"port {port} cannot be used ({error.strerror}); choose one with --port") from None
