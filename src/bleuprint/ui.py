"""MLflow's pages in the browser, over the project's own database."""

import logging
import os
import socket
import sys

from bleuprint.database import shown, tracking_uri
from bleuprint.origin import project_root
from bleuprint.tracking import connected, find_experiment

logger = logging.getLogger(__name__)


def serve(port: int) -> None:
    """Become MLflow's server on 127.0.0.1 over the project's database; ValueError or OSError where that cannot be."""
    root = project_root()
    uri = tracking_uri(root)
    if uri.startswith(("http:", "https:")):
        raise ValueError(f"MLFLOW_TRACKING_URI is {uri}: open that page, or unset the variable")
    check_port(port)
    with (
        connected() as client
    ):  # a database that is not there yet is built under the lock, before the workers race for it
        runs = f"http://127.0.0.1:{port}/#/experiments/{find_experiment(client)}/runs"
    command = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--artifacts-destination", str(root / "work/mlartifacts")]
    logger.info("MLflow over %s; the runs are on %s; Ctrl-C ends it", shown(uri), runs)
    # Not among the arguments, which everybody on the machine can read: it may hold a password.
    os.execve(sys.executable, [sys.executable, *command], {**os.environ, "MLFLOW_BACKEND_STORE_URI": uri})


def check_port(port: int) -> None:
    """Raise ValueError where another process has the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ValueError(f"port {port} cannot be used ({error.strerror}); choose another with --port") from None
