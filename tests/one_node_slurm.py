"""A real Slurm of one node, from Debian's packages, for as long as it is needed.

Its configuration has to stand in /etc/slurm: a job's own `srun` is started without SLURM_CONF. Nothing else of the
machine is touched, and a Slurm that is configured there already is left alone.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock

import debian_packages

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "squeue", "scancel", "scontrol", "munged", "setpriv")
ETC = Path("/etc/slurm")
LOCK = Path("/var/lock/bleuprint-one-node-slurm.lock")  # one at a time on a machine
MARK = "# Written by tests/one_node_slurm.py, which removes it; left by a killed test, it may be deleted.\n"
PATIENCE_SECONDS = 120
PARTITIONS = ("cpu", "gpu")  # as profiles/slurm names them

# Four cores, 16 GB and a GPU that are only said to be there (config_overrides, /dev/null): the profile's requests are
# granted on any machine. MinJobAge: jobs that are over can be looked at for an hour.
CONFIGURATION = """\
ClusterName=bleuprint
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
MinJobAge=3600
KillWait=5
ReturnToService=2
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=16000 Gres=gpu:1
{partitions}
"""


def why_not() -> str | None:
    """Return why no Slurm can be run for the tests; None if it can, or if only trying tells."""
    if os.environ.get("BLEUPRINT_TEST_SLURM") != "1":
        return (
            "it installs Debian's Slurm and writes into /etc/slurm: only with BLEUPRINT_TEST_SLURM=1 (make test-slurm)"
        )
    if os.geteuid() != 0:
        return "a Slurm of one node needs root"
    if missing_programs() and shutil.which("apt-get") is None:
        return f"no {', '.join(missing_programs())}, and no apt-get to install Debian's packages with"
    if not is_ours(ETC / "slurm.conf"):
        return f"this machine has a Slurm of its own: {ETC / 'slurm.conf'}"
    return None


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name) is None]


def is_ours(file: Path) -> bool:
    """Return whether a file is not there, or is one that a killed test left."""
    return not file.exists() or file.read_text().startswith(MARK)


def install() -> None:
    """Install what is missing of Slurm; OSError with apt-get's last words where it can't."""
    os.environ["PATH"] += f"{os.pathsep}/usr/sbin"  # Debian's place for daemons, where not every PATH looks
    if (problem := debian_packages.install(PACKAGES, lambda: not missing_programs())) is not None:
        raise OSError(problem)


class Controller:
    """The daemon that clients ask and that keeps the queue; it can be away for a while."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.running = ExitStack()

    def start(self) -> None:
        """Start it with the state that it left, and wait until it answers and the node is there."""
        self.running.enter_context(daemon(self.place, "slurmctld", "-D"))
        wait_for("the node", lambda: "idle" in states("sinfo", "%T"), self.place / "slurmctld.log")

    def stop(self) -> None:
        self.running.close()


@contextmanager
def one_node_slurm(place: Path) -> Iterator[Controller]:
    """Run munge, the controller and the node until the context ends; yield the controller. Logs are in `place`.

    The daemons also end when this process is killed.
    """
    with ExitStack() as stack:
        stack.enter_context(FileLock(LOCK, timeout=PATIENCE_SECONDS * 10))
        for name in ("state", "spool"):
            (place / name).mkdir()
        stack.callback(remove_configuration)
        write_configuration(place)
        (place / "munge.key").write_bytes(os.urandom(64))
        (place / "munge.key").chmod(0o400)
        stack.enter_context(daemon(place, "munged", "--foreground", "--force", *munge_files(place)))
        wait_for("munge", lambda: (place / "munge.socket").exists(), place / "munged.log")
        stack.enter_context(daemon(place, "slurmd", "-D"))
        controller = Controller(place)
        stack.callback(controller.stop)
        controller.start()
        stack.callback(end_jobs)
        yield controller


def write_configuration(place: Path) -> None:
    """Write /etc/slurm: ports that are free, one node, the partitions of profiles/slurm."""
    host = socket.gethostname().partition(".")[0]
    controller_port, node_port = free_ports(2)
    partitions = "\n".join(f"PartitionName={name} Nodes={host} MaxTime=2-0" for name in PARTITIONS)
    text = CONFIGURATION.format(
        host=host, controller_port=controller_port, node_port=node_port, place=place, partitions=partitions
    )
    ETC.mkdir(exist_ok=True)
    (ETC / "slurm.conf").write_text(MARK + text)
    (ETC / "gres.conf").write_text(MARK + "Name=gpu File=/dev/null\n")


def remove_configuration() -> None:
    for name in ("slurm.conf", "gres.conf"):
        (ETC / name).unlink(missing_ok=True)


def munge_files(place: Path) -> list[str]:
    """Return the options that keep munged away from the machine's own files."""
    return [
        f"--{option}={place / name}"
        for option, name in {
            "key-file": "munge.key",
            "socket": "munge.socket",
            "pid-file": "munged.pid",
            "seed-file": "munged.seed",
            "log-file": "munged.own.log",
        }.items()
    ]


@contextmanager
def daemon(place: Path, *command: str) -> Iterator[None]:
    """Run a daemon in the foreground, its output in a log file; end it with the context or with this process."""
    with (place / f"{command[0]}.log").open("a") as log:
        process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *command], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_SECONDS)
            finally:
                process.kill()


def wait_for(what: str, is_up: Callable[[], bool], log: Path) -> None:
    """Wait until something is up; TimeoutError with the end of its log where that takes too long."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_up():
        if time.monotonic() > end:
            last_words = log.read_text()[-2000:]
            raise TimeoutError(f"{what} is not up after {PATIENCE_SECONDS} s; {log} ends with:\n{last_words}")
        time.sleep(0.1)


def states(command: str, field: str, *options: str) -> set[str]:
    """Return what sinfo or squeue say of all nodes or jobs; nothing while the controller doesn't answer."""
    done = subprocess.run([command, "--noheader", "--format", field, *options], text=True, capture_output=True)
    return set(done.stdout.split())


def end_jobs() -> None:
    """Cancel the jobs that are left and wait until they are gone: a daemon that ends leaves them alone."""
    subprocess.run(["scancel", "--user", "root"], capture_output=True)
    end = time.monotonic() + PATIENCE_SECONDS
    while states("squeue", "%T") and time.monotonic() < end:
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which nothing listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]
