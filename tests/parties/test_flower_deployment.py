"""A real federation on this machine: a superlink, two supernodes, one process per message."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.parties.helpers import free_ports

from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.flower import FederatedRecipe, SharedNoise

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower"
BIN = Path(sys.executable).parent
PATIENCE = 180.0


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def hospitals(folder):
    """Run the example's own data maker and return the node configurations."""
    spec = importlib.util.spec_from_file_location("make_data", EXAMPLE / "make_data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [module.hospital(folder, number, size) for number, size in ((1, 200), (2, 300))]


class Federation:
    def __init__(self, folder):
        self.folder, self.started = folder, []
        self.port, *self.node_ports = free_ports(3)
        shutil.copytree(EXAMPLE, folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "home").mkdir()
        connection = f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (folder / "home" / "config.toml").write_text('[superlink]\ndefault = "here"\n' + connection)
        own = {"FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, **own, "FLWR_DISABLE_UPDATE_CHECK": "1", "PATH": path}

    def start(self, name, *command):
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its children go with it
            )
        self.started.append(process)

    def superlink(self):
        address = ("--host", "127.0.0.1", "--port", str(self.port))
        off = "--disable-runtime-dependency-installation"
        self.start("superlink", "flower-superlink", "--insecure", *address, off)
        self.wait(lambda: listens(self.port), "the superlink")

    def supernode(self, number, config):
        link = ("--superlink", f"127.0.0.1:{self.port}", "--port", str(self.node_ports[number]))
        self.start(f"node-{number}", "flower-supernode", "--insecure", *link, "--node-config", config)

    def run(self, **config):
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        command = [str(BIN / "flwr"), "run", str(self.folder / "app"), "here", "--run-config", words]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def wait(self, ready, what):
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if time.monotonic() > deadline:
                logs = {p.name: p.read_text(errors="replace")[-2000:] for p in self.folder.glob("*.log")}
                raise AssertionError(f"{what} did not come: {logs}")
            time.sleep(0.2)

    def stop(self):
        for process in self.started:
            process.terminate()  # a superlink takes its own children along
        for process in self.started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path)
    yield made
    made.stop()


def settled(folder, number):
    ledger = Ledger.open(folder / f"hospital-{number}" / "ledger.sqlite", create=False)
    try:
        return [entry.status.value for entry in ledger.history("patients")]
    finally:
        ledger.close()


def test_two_hospitals_learn_over_a_real_superlink_and_pay_on_their_own_ledgers(federation, tmp_path):
    configs = hospitals(tmp_path / "data")
    federation.superlink()
    for number, config in enumerate(configs):
        federation.supernode(number, config)
    output = tmp_path / "model.npz"
    settings = {"rounds": 2, "local-steps": 2, "batch-size": 20, "output": str(output)}
    federation.run(**settings)
    federation.wait(output.with_suffix(".json").exists, "the model")
    federation.wait(lambda: all(settled(tmp_path / "data", n) == ["settled"] for n in (1, 2)), "the ledgers")
    said = json.loads(output.with_suffix(".json").read_text())
    assert 0.99 * 4 < said["epsilon"] <= 4.0
    assert len(said["clients"]) == 2
    assert np.count_nonzero(np.load(output)["weights"]) == 5
    for number in (1, 2):  # the second round went on where the process of the first one had ended
        journal = tmp_path / "data" / f"hospital-{number}" / "rounds" / "rounds"
        assert journal.read_text().split() == ["1", "2"]  # both are spent, so there is nothing to close


SHARED = {"clients": 2, "update_clip": 0.5, "epsilon": 4.0, "delta": 5e-6, "least": 2, "honest": 1}


@pytest.mark.long
def test_hospitals_add_parts_of_noise_under_masks_over_a_real_superlink(federation, tmp_path):
    """The example with two words changed at each end: the apps are secure ones, and clients are protected."""
    changes = {
        "client.py": [
            ("client_app", "secure_client_app"),
            ("folder=", 'protection="client",\n        folder='),
        ],
        "server.py": [("server_app", "secure_server_app")],
    }
    for name, words in changes.items():
        path = tmp_path / "app" / "federation" / name
        for old, new in words:
            path.write_text(path.read_text().replace(old, new))
    settings = tmp_path / "app" / "pyproject.toml"
    settings.write_text(f"{settings.read_text()}shared = {json.dumps(json.dumps(SHARED))}\n")
    configs = hospitals(tmp_path / "data")
    for number in (1, 2):
        path = tmp_path / "data" / f"hospital-{number}" / "ledger.sqlite"
        path.unlink()
        with Ledger.open(path) as ledger:
            ledger.create("patients", BudgetPolicy(epsilon=4.0, delta=1e-5, unit="client"))
    federation.superlink()
    for number, config in enumerate(configs):
        federation.supernode(number, config)
    output = tmp_path / "model.npz"
    federation.run(**{"rounds": 2, "local-steps": 2, "batch-size": 0, "output": str(output)})
    federation.wait(output.with_suffix(".json").exists, "the model")
    federation.wait(lambda: all(settled(tmp_path / "data", n) == ["settled"] for n in (1, 2)), "the ledgers")
    said = json.loads(output.with_suffix(".json").read_text())
    assert 0.99 * 4 < said["epsilon"] <= 4.0
    weights = np.load(output)["weights"]
    recipe = FederatedRecipe(2, 2, None, 5, 2.0, 1.0, shared=SharedNoise(**SHARED))
    points = 2 * weights / recipe.shared.grid(recipe, weights.size)[0]  # means of two clients, twice
    assert np.count_nonzero(weights) == 5
    assert np.allclose(points, np.rint(points), atol=1e-6)
