"""A team's MLflow, a server of its own on a PostgreSQL from Debian's package, for as long as it is needed."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx

from bleuprint.database import check_database
from debian_packages import install

SOURCE = Path(__file__).parents[2] / "src"
INSTALL = "BLEUPRINT_TEST_POSTGRESQL"
PASSWORD = "a-password"
PATIENCE_SECONDS = 300  # on a quiet machine PostgreSQL needs 2, MLflow with its 60 migrations 15


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: that of PATH, or the newest where Debian keeps them."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    releases = {int(path.parts[-3]): path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")}
    return releases[max(releases)] if releases else None


def why_not() -> str | None:
    """Return why there can be no PostgreSQL here, None where there is one; install it where root asks for that."""
    if find_spec("psycopg2") is None:
        return "psycopg2 is not installed: pip install bleuprint[postgresql]"
    if programs() is None and os.environ.get(INSTALL) == "1":
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            return "PostgreSQL is not installed, which takes root and apt-get"
        return install(("postgresql",), lambda: programs() is not None)
    return None if programs() else f"PostgreSQL is not installed; {INSTALL}=1 lets root install Debian's package"


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a PostgreSQL with an empty database and yield its address, with the password.

    It refuses root, and runs then as the user of Debian's package, in a folder that this user can reach.
    """
    place = Path(tempfile.mkdtemp(prefix="bleuprint-postgresql-"))
    as_user: tuple[str, ...] = ()
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        as_user = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        os.chown(place, user.pw_uid, user.pw_gid)
    try:
        make_cluster(place, as_user)
        port = free_port()
        uri = f"postgresql://team:{PASSWORD}@127.0.0.1:{port}/postgres"
        command = (*as_user, program("postgres"), "-D", f"{place}/data", "-k", str(place), "-p", str(port), "-F")
        with daemon(command, place / "log", lambda: answers_sql(uri), signal.SIGQUIT):
            yield uri
    finally:
        shutil.rmtree(place)


def make_cluster(place: Path, as_user: tuple[str, ...]) -> None:
    """Make the database below `place`, of the user `team`, who needs the password."""
    (place / "password").write_text(PASSWORD)
    (place / "password").chmod(0o644)
    options = ("--username=team", f"--pwfile={place}/password", "--auth=scram-sha-256", "--no-sync")
    command = (*as_user, program("initdb"), f"--pgdata={place}/data", *options)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place)
    assert done.returncode == 0, done.stdout


def program(name: str) -> str:
    folder = programs()
    assert folder is not None, "ask why_not first"
    return str(folder / name)


def answers_sql(uri: str) -> bool:
    try:
        check_database(uri)
    except ConnectionError:
        return False
    return True


# --- MLflow -----------------------------------------------------------------------------------------------------------


@contextmanager
def mlflow_server(database: str, place: Path) -> Iterator[str]:
    """Run `bleuprint ui`, which becomes `mlflow server`, over a database; yield the address of its pages."""
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "MLFLOW_TRACKING_URI": database}
    command = (sys.executable, "-m", "bleuprint", "ui", "--port", str(port))
    with daemon(command, place / "log", lambda: answers_http(uri), signal.SIGKILL, environment):
        yield uri


def answers_http(uri: str) -> bool:
    try:
        return httpx.get(f"{uri}/health").is_success
    except httpx.TransportError:
        return False


# --- both -------------------------------------------------------------------------------------------------------------


@contextmanager
def daemon(
    command: Sequence[str],
    log: Path,
    is_up: Callable[[], bool],
    stop: signal.Signals,
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Run a program in the foreground, its output in `log`, and wait until it is up; `stop` ends it and its children.

    The program itself also ends where the tests are killed.
    """
    guard = ("setpriv", "--pdeathsig", "TERM") if shutil.which("setpriv") else ()
    with log.open("w") as out:
        process = subprocess.Popen(
            (*guard, *command), stdout=out, stderr=out, cwd=log.parent, env=environment, start_new_session=True
        )
    try:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_up():
            assert process.poll() is None, f"{command} ended:\n{log.read_text()}"
            assert time.monotonic() < end, f"{command} is not up:\n{log.read_text()}"
            time.sleep(0.1)
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, stop)
        process.wait(PATIENCE_SECONDS)


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
