import re
from pathlib import Path

import pytest

from bleuprint.database import check_database, shown, tracking_uri


@pytest.mark.parametrize(
    ("uri", "named", "reason"),
    [
        ("postgresql://me:secret@127.0.0.1:1/all", "postgresql://me:***@127.0.0.1:1/all", "refused"),  # no server there
        ("mysql+none://me:secret@127.0.0.1/all", "mysql+none://me:***@127.0.0.1/all", "none"),  # no such driver
        ("postgresql:secret", "MLFLOW_TRACKING_URI", "Could not parse"),
        ("sqlite:////no/such/folder/mlflow.db", "sqlite:////no/such/folder/mlflow.db", "unable to open"),
    ],
)
def test_a_database_that_cannot_be_used_is_named_without_its_password(uri: str, named: str, reason: str) -> None:
    with pytest.raises(ConnectionError, match=f"^{re.escape(named)} cannot be opened: .*{reason}") as error:
        check_database(uri)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("uri", ["http://127.0.0.1:1", "https://127.0.0.1:1/mlflow"])
def test_a_server_is_not_looked_at(uri: str) -> None:
    check_database(uri)


def test_the_projects_own_file_can_be_used(tmp_path: Path) -> None:
    check_database(tracking_uri(tmp_path))
    assert shown(tracking_uri(tmp_path)) == f"sqlite:///{tmp_path}/mlflow.db"
