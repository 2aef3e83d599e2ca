"""The tags that say where a run comes from: the commit under a name that MLflow's pages show."""

import subprocess
from pathlib import Path

from bleuprint.origin import origin_tags


def test_the_commit_has_a_tag_that_mlflow_shows(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "a.txt").write_text("a\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "state")
    commit = git("rev-parse", "HEAD")
    assert origin_tags(tmp_path)["commit"] == origin_tags(tmp_path)["mlflow.source.git.commit"] == commit
    (tmp_path / "a.txt").write_text("b\n")
    assert origin_tags(tmp_path)["commit"] == f"{commit} with changes"
