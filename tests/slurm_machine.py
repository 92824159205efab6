"""A Slurm of one machine on loopback, from Debian's packages, for as long as a `with` lasts.

By hand, as root, a sweep through it beside the same sweep here: python tests/slurm_machine.py pair=iid seed=0,1
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sweeping import jobs, sweep

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo", "scancel", "squeue")
INSTALL_S, START_S, STOP_S = 240, 40, 20
LIFE_S = 600
"""Whatever happens to the test, no daemon lives longer."""

SWEEP = ("hydra/launcher=submitit_slurm", "hydra.launcher.partition=debug", "hydra.launcher.cpus_per_task=1")
LIMITS = ("hydra.launcher.timeout_min=4",)

CONFIGURATION = """
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName=localhost NodeAddr=127.0.0.1 CPUs={cores} RealMemory=1000
PartitionName=debug Nodes=ALL Default=YES MaxTime=5 State=UP
"""


def install() -> None:
    """Debian's packages, where they are missing.

    Raises:
        RuntimeError: they cannot be installed here, or slurmd cannot run.
    """
    if os.geteuid() != 0:
        raise RuntimeError("a one-machine Slurm must be set up by root")
    os.environ["PATH"] += f"{os.pathsep}/usr/sbin{os.pathsep}/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise RuntimeError(f"Slurm's {', '.join(missing)} are missing and there is no apt-get to install them")
    quiet = {"DEBIAN_FRONTEND": "noninteractive", **os.environ}
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(["apt-get", *words], env=quiet, capture_output=True, text=True, timeout=INSTALL_S)  # noqa: PLW1510
        if done.returncode:
            raise RuntimeError(f"apt-get {words[0]} failed, so Slurm cannot be installed: {done.stderr.strip()}")


@contextmanager
def machine() -> Iterator[dict[str, str]]:
    """Set Slurm up, give the variables that its clients need, and tear it down.

    Raises:
        RuntimeError: it cannot be installed, or does not come up in time.
    """
    install()
    folder = Path(tempfile.mkdtemp(prefix="slurm"))  # short: the name of a socket has 107 characters
    variables = {"SLURM_CONF": f"{folder}/slurm.conf"}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        _configure(folder)
        for daemon in _daemons(folder):
            stack.enter_context(_running(daemon, folder, variables))
        stack.callback(_empty_the_queue, variables)
        _wait_until_idle(folder, variables)
        yield variables


def _configure(folder: Path) -> None:
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    controller, node = _free_ports(2)
    text = CONFIGURATION.format(controller=controller, node=node, folder=folder, cores=len(os.sched_getaffinity(0)))
    (folder / "slurm.conf").write_text(text)


def _daemons(folder: Path) -> list[list[str]]:
    files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    named = [f"--{option}={folder / name}" for option, name in files.items()]
    return [
        ["munged", "--foreground", "--force", *named],
        ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"],
        ["slurmd", "-D", "-N", "localhost", "-f", f"{folder}/slurm.conf"],
    ]


@contextmanager
def _running(daemon: list[str], folder: Path, variables: dict[str, str]) -> Iterator[None]:
    limited = ["timeout", "--kill-after=5", str(LIFE_S), *daemon]
    with (folder / f"{daemon[0]}.log").open("w") as log:
        process = subprocess.Popen(limited, env=os.environ | variables, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_idle(folder: Path, variables: dict[str, str]) -> None:
    until = time.monotonic() + START_S
    while (state := _said(["sinfo", "--noheader", "--format=%T"], variables)) != "idle":
        if time.monotonic() > until:
            logs = "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(folder.glob("*.log")))
            raise RuntimeError(f"Slurm did not come up within {START_S} s, its node is {state!r}\n{logs}")
        time.sleep(0.2)


def _empty_the_queue(variables: dict[str, str]) -> None:
    until = time.monotonic() + STOP_S
    while _said(["squeue", "--noheader"], variables) and time.monotonic() < until:
        _said(["scancel", "--user=root"], variables)
        time.sleep(0.5)


def _said(command: list[str], variables: dict[str, str]) -> str:
    try:
        done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=10)  # noqa: PLW1510
    except subprocess.TimeoutExpired:
        return "no answer"
    return (done.stdout or done.stderr).strip()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def compare(*asked: str) -> bool:
    """Run a sweep through Slurm and the same sweep here; whether status and records are the same."""
    folder = Path(tempfile.mkdtemp(prefix="sweeps"))
    with machine() as variables:
        there = sweep(folder / "there", *asked, *SWEEP, *LIMITS, **variables)
    here = sweep(folder / "here", *asked)
    same = (there[0], jobs(folder / "there")) == (here[0], jobs(folder / "here"))
    sys.stdout.write(f"status {there[0]} there, {here[0]} here, {'the same' if same else 'other'} records: {folder}\n")
    return same


if __name__ == "__main__":
    sys.exit(not compare(*(sys.argv[1:] or ("pair=iid", "max_tokens=20", "seed=0,1"))))
