"""`doctor`: real faults of machine and project, each named, with what to do; and a machine that it says is well."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from small_params import write_small_params
from specs import ROOT, bleuprint

from bleuprint.checks import machine_checks as machine
from bleuprint.checks import project_checks as project
from bleuprint.checks.findings import Finding, worst
from bleuprint.graph import Params, load_params
from bleuprint.tables import use

NO_FILE_CAN_BE_MADE_HERE = Path("/proc/self")  # not even by root, as whom tests may run


@pytest.fixture(scope="module")
def small_params(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_params(tmp_path_factory.mktemp("params"))


@pytest.fixture(scope="module")
def demo(small_params: Path) -> Params:
    return load_params(small_params)


@pytest.fixture
def root(tmp_path: Path, small_params: Path) -> Path:
    """A project with parameters, folders and git, as in a fresh clone."""
    shutil.copy(small_params, tmp_path)
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    for folder in ("data", "runs", ".dvc"):
        (tmp_path / folder).mkdir()
    return tmp_path


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_sound_project_and_the_same_with_faults(root: Path) -> None:
    done = bleuprint(root, "doctor", PATH=path_of(Path(sys.executable).parent))
    names = [line.split()[1] for line in done.stdout.splitlines()[:-1]]
    assert names == [
        "python", "code", "packages", "params", "torch", "threads", "allocator", "disk", "folders", "mirrors", "dvc",
        "mlflow", "git",
    ]  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1][:11]) == (0, "0 problems,"), done.stdout
    (root / "results").symlink_to(NO_FILE_CAN_BE_MADE_HERE)
    (root / "params.yaml").write_text("table: demo\n")
    dead = f"http://127.0.0.1:{closed_port()}"
    done = bleuprint(root, "doctor", PATH=path_of(Path(sys.executable).parent), MLFLOW_TRACKING_URI=dead)
    assert done.returncode == 1
    problems = [line for line in done.stdout.splitlines() if line.startswith("problem ")]
    assert [line.split()[1] for line in problems] == ["params", "folders", "mlflow"]
    assert all(" -> " in line for line in problems)
    assert "results cannot be written to" in problems[1]
    assert dead in problems[2]
    assert done.stdout.splitlines()[-1].startswith("3 problems, ")


def path_of(first: Path) -> str:
    return f"{first}{os.pathsep}{os.environ['PATH']}"


def test_torch_is_not_imported_by_it(root: Path) -> None:
    code = "import sys; from bleuprint.checks import doctor; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=root, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}
        ).returncode
        == 0
    )


# --- the machine ------------------------------------------------------------------------------------------------------


def test_another_python_first_on_path(tmp_path: Path) -> None:
    assert machine.check_python({"PATH": path_of(Path(sys.executable).parent)}).state == "ok"
    other = script(tmp_path / "bin/python", "exit 0")
    found = machine.check_python({"PATH": path_of(other.parent)})
    assert (found.state, found.text.partition(",")[0]) == ("problem", f"dvc and snakemake start {other}")
    assert machine.check_python({"PATH": str(tmp_path)}).text.startswith("dvc and snakemake start no python")


def test_packages_that_are_not_as_locked(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("pytest==0.0.1\nno-such-package==1.0\n")
    assert machine.check_packages(lock) == Finding("problem", "missing: no-such-package", "make venv")
    lock.write_text("pytest==0.0.1\n")
    found = machine.check_packages(lock)
    assert (found.state, found.text.partition(" pytest ")[0]) == ("warning", "not as locked:")
    assert found.text.endswith(", not 0.0.1")
    lock.write_text(f"pytest=={pytest.__version__}\n")
    assert machine.check_packages(lock).state == "ok"


def test_a_torch_that_cannot_be_imported_or_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')\n")
    found = machine.check_torch("auto", {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (found.state, found.text) == (
        "problem", "torch cannot be used: OSError: libcudart.so.12: cannot open shared object file"
    )  # fmt: skip


TORCH = """
class version: cuda = {cuda!r}; hip = None
class cuda:
    @staticmethod
    def is_available(): return False
__version__ = "9.9"
import sys
print("UserWarning: the driver is too old", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("cuda", "gpu", "device", "state", "text"),
    [
        (None, True, "auto", "warning", "torch 9.9, for the CPU, and a GPU is there: NVIDIA Test, 1.0"),
        (None, True, "cuda", "problem", "torch 9.9, for the CPU, and a GPU is there: NVIDIA Test, 1.0"),
        ("12.8", True, "auto", "problem",
         "torch 9.9, CUDA 12.8 cannot use NVIDIA Test, 1.0: UserWarning: the driver is too old"),
        (None, False, "auto", "ok", "torch 9.9, for the CPU; no GPU here"),
        (None, False, "cuda", "problem", "machine.device is cuda, and there is no GPU (torch 9.9, for the CPU)"),
    ],
)  # fmt: skip
def test_a_build_that_does_not_fit_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str | None, gpu: bool, device: str, state: str, text: str
) -> None:
    """A stand-in for torch and one for nvidia-smi: no machine here has a GPU."""
    (tmp_path / "torch.py").write_text(TORCH.format(cuda=cuda))
    script(tmp_path / "bin/nvidia-smi", "echo NVIDIA Test, 1.0" if gpu else "exit 9")
    monkeypatch.setenv("PATH", path_of(tmp_path / "bin"))
    found = machine.check_torch(device, {**os.environ, "PYTHONPATH": str(tmp_path)})  # type: ignore[arg-type]
    assert (found.state, found.text) == (state, text)
    assert bool(found.advice) == (state != "ok")


def test_threads_cores_and_openmp() -> None:
    assert machine.check_threads(2, {}, cores=4) == Finding("ok", "machine.threads 2, 4 cores")
    assert machine.check_threads(2, {"OMP_NUM_THREADS": "1"}, cores=4).state == "ok"
    assert machine.check_threads(8, {}, cores=4).advice == "machine.threads: 4, which gives other bits"
    found = machine.check_threads(2, {"OMP_THREAD_LIMIT": "1"}, cores=4)
    assert (found.state, found.advice) == ("problem", "unset OMP_THREAD_LIMIT")


def test_little_room_on_the_disk() -> None:
    free = {Path("/a"): 10 * 2**30, Path("/b"): 2**30 // 2}
    assert machine.check_disk([], free).text == "0.5 GiB free in /b"
    assert machine.check_disk([], free).state == "problem"
    assert machine.check_disk([], {Path("/a"): 3 * 2**30}).state == "warning"
    assert machine.check_disk([Path("/")]).text.endswith(" GiB free in /")


def test_an_allocator_that_is_preloaded() -> None:
    assert machine.check_allocator({"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}).text == "jemalloc, by LD_PRELOAD"
    assert machine.check_allocator({}).state == ("ok" if sys.platform == "linux" else "warning")


def test_the_code_of_another_clone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "src/bleuprint").mkdir(parents=True)
    monkeypatch.chdir(root)
    assert machine.check_installation().advice == "export PYTHONPATH=src"


# --- the project ------------------------------------------------------------------------------------------------------


def test_folders_that_cannot_be_written_to(root: Path) -> None:
    assert project.check_folders(root) == Finding("ok", "4 can be written to")
    (root / "results").symlink_to(NO_FILE_CAN_BE_MADE_HERE)
    (root / "work").write_text("a file")
    (root / "reports").symlink_to(root / "nowhere")
    found = project.check_folders(root)
    assert found.state == "problem"
    assert [part.rpartition("/")[2].partition(" ")[0] for part in found.text.split("; ")] == [
        "results",
        "reports",
        "work",
    ]
    assert list((root / "data").iterdir()) == [], "nothing is left behind"


class Mirror(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(200 if self.path == "/good/data/task1/raw/train.en.gz" else 404)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"0.1.0")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Mirror) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def test_mirrors(root: Path, small_params: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "table").mkdir()
    (root / "table/small.yaml").write_text("title: Small\nruns: [tiny-1]\n")
    text = (root / "params.yaml").read_text()
    place = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a"
    dead = f"http://127.0.0.1:{closed_port()}/mirror"
    (root / "params.yaml").write_text(text.replace(place, dead, 1))
    use("small", root / "params.yaml", root / "table")
    params = load_params(root / "params.yaml")
    found = project.check_mirrors(params, root / "data", {})
    assert (found.state, "Connection refused" in found.text) == ("problem", True)
    assert found.text.startswith(f"multi30k: no mirror answers ({dead}: ")
    found = project.check_mirrors(params, root / "data", {"BLEUPRINT_MIRROR": f"{server}/bad"})
    assert f"({server}/bad: HTTP 404 Not Found; {dead}" in found.text
    assert project.check_mirrors(params, root / "data", {"BLEUPRINT_MIRROR": f"{server}/good"}) == Finding(
        "ok", f"multi30k from {server}/good"
    )
    found = project.check_mirrors(params, root / "data", {"BLEUPRINT_MIRROR": "example.org"})
    assert (found.state, found.text.partition(" is ")[0]) == ("problem", "BLEUPRINT_MIRROR")
    (root / "data/multi30k").mkdir()
    (root / "data/multi30k/manifest.json").write_text("{}")
    assert project.check_mirrors(params, root / "data", {}).state == "ok", "it is here"


def test_the_toy_needs_no_mirror(demo: Params, root: Path) -> None:
    assert project.check_mirrors(demo, root / "data", {}) == Finding("ok", "the active table needs none")


def test_every_stage_of_the_graph_is_looked_at(demo: Params) -> None:
    graph = project.read_yaml(ROOT / "dvc.yaml")["stages"]
    assert list(dict.fromkeys(stage.partition("@")[0] for stage in project.stages_of(demo))) == list(graph)


def test_what_dvc_would_run_again(demo: Params, root: Path) -> None:
    assert project.check_dvc(demo, root).text == "dvc.lock is not there: nothing has been run"
    code = root / "src/bleuprint/toy.py"
    code.parent.mkdir(parents=True)
    code.write_text("one\n")
    values = project.read_yaml(root / "params.yaml")
    stage = {
        "deps": [
            {"path": "src/bleuprint/toy.py", "md5": project.md5_of(code)},
            {"path": "data/raw/toy", "md5": "x.dir"},
        ],
        "params": {"params.yaml": {"datasets.toy": values["datasets"]["toy"], "machine": values["machine"]}},
    }
    (root / "dvc.lock").write_text(
        json.dumps({"schema": "2.0", "stages": {it: stage for it in project.stages_of(demo)}})
    )
    assert project.check_dvc(demo, root) == Finding("ok", "8 stages as in dvc.lock, by code and parameters")
    code.write_text("two\n")
    found = project.check_dvc(demo, root)
    assert (found.state, "download@toy (src/bleuprint/toy.py changed)" in found.text) == ("warning", True)
    assert found.text.endswith(" and 5 more")
    code.write_text("one\n")
    text = (root / "params.yaml").read_text()
    (root / "params.yaml").write_text(text.replace("threads: 2 ", "threads: 1 "))
    assert "(machine changed)" in project.check_dvc(demo, root).text
    (root / "dvc.lock").write_text("<<<<<<< HEAD\nschema: '2.0'\n=======\n")
    assert project.check_dvc(demo, root).state == "problem"
    shutil.rmtree(root / ".dvc")
    assert "this is no DVC project" in project.check_dvc(demo, root).text


def test_mlflows_own_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert project.check_mlflow(root) == Finding("ok", "mlflow.db is made by the first training")
    newest = project.newest_tables()
    assert len(newest) == 1
    for version, state in ((min(newest), "ok"), ("0a8213491aaa", "problem")):
        (root / "mlflow.db").unlink(missing_ok=True)
        with closing(sqlite3.connect(root / "mlflow.db")) as database:
            database.execute("CREATE TABLE alembic_version (version_num TEXT)")
            database.execute("INSERT INTO alembic_version VALUES (?)", (version,))
            database.commit()
        assert project.check_mlflow(root).state == state
    assert f"mlflow db upgrade sqlite:///{root}/mlflow.db" == project.check_mlflow(root).advice
    (root / "mlflow.db").write_text("no database, but long enough to be looked at" * 100)
    assert "file is not a database" in project.check_mlflow(root).text
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root}/nowhere/mlflow.db")
    assert project.check_mlflow(root).text == f"{root}/nowhere is not there, so mlflow.db cannot be made"


@pytest.mark.parametrize("uri", ["http://127.0.0.1:{port}", "postgresql://me:secret@127.0.0.1:{port}/db", "ftp://here"])
def test_a_wrong_tracking_uri(root: Path, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(port=closed_port()))
    found = project.check_mlflow(root)
    assert (found.state, found.advice) == ("problem", "start what it names, or unset MLFLOW_TRACKING_URI")
    assert "secret" not in found.text


def test_a_server_of_another_release(root: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    assert project.check_mlflow(root).text.startswith(f"{server} runs mlflow 0.1.0, here it is ")


def test_git(root: Path) -> None:
    assert project.check_git(root).text == "no commit here: results will name none"
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run(["git", "add", "--all"], cwd=root, check=True)
    subprocess.run(["git", "commit", "--quiet", "--message", "all"], cwd=root, check=True)
    assert project.check_git(root).text.endswith(", clean")
    (root / "params.yaml").write_text("")
    assert project.check_git(root).advice == "git status"


def test_the_worst_of_several() -> None:
    ok, warning = Finding("ok", "a"), Finding("warning", "b", "do")
    assert worst([ok, ok]) == Finding("ok", "a")
    assert worst([ok, warning, Finding("warning", "c", "do")]) == Finding("warning", "b; c", "do")
