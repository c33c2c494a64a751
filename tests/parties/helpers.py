"""A consortium of three on this machine: certificates, data, ledgers, settings, processes."""

import contextlib
import datetime
import multiprocessing
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sordino.cli import main
from sordino.execute.parties.field import Field
from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.mpc import (
    control,
    party,  # noqa: F401 - imported once, before the members are forked
)
from sordino.parties.mpc.charter import Approvals
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.control import plan_from
from sordino.parties.mpc.links import fingerprint_of
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.transcript import compare, read_transcript

NAMES = ("north", "south", "west")
Field()  # its machine code is loaded once, before the members are forked
COMMAND = [sys.executable, "-c", "from sordino.cli import main; main()"]


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def authority():
    """Return the key and the certificate of a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key, _certificate("authority", key, None, key, ca=True)


def _certificate(name, key, issuer, signer, ca=False):
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )


def write_credentials(folder, name, issuer_key, issuer):
    """Write key, certificate and authority as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(name, key, issuer, issuer_key)
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "authority.pem").write_bytes(issuer.public_bytes(pem))


def linear_task(features=4, estimator="SparseLogisticRegression", solver_options=None, **params):
    """Return the task of a linear model on rows of norm 1, with labels -1 and 1 but for what it says."""
    usual = {"classes": [-1, 1], "data_norm": 1.0, "solver": "ight", "fit_intercept": False}
    usual |= {"solver_options": solver_options}
    params = {name: value for name, value in {**usual, **params}.items() if value is not None}
    return {"estimator": estimator, "features": features, "params": params}


_FORK = multiprocessing.get_context("fork")


def _answer(path):
    """Be a member's waiting process that starts nothing."""
    control._watch = lambda daemon: None
    control.serve(PartyConfig.load(path), path)


def _child(arguments, log, sabotage):
    """Be one member: say everything into a file."""
    sys.stdout = sys.stderr = log.open("w", buffering=1)
    if sabotage is not None:
        sabotage()
    try:
        main(arguments, prog_name="sordino")
    finally:
        sys.stdout.flush()


@dataclass
class Consortium:
    """Three members in folders of their own."""

    folder: Path
    records: int = 60
    features: int = 4
    task: dict = field(default_factory=dict)
    epsilon: float = 1.0
    budget: float = 4.0
    mode: str = "noise-inside"
    message: float = 10.0
    connect: float = 20.0
    control: bool = False
    patience: float = 0.0
    names: tuple = NAMES

    def __post_init__(self):
        self.key, self.certificate = authority()
        self.ports = free_ports(2 * len(self.names))
        public = np.random.default_rng(5)
        weights = public.standard_normal(self.features)
        for name in self.names:
            home = self.folder / name
            home.mkdir(parents=True)
            write_credentials(home, name, self.key, self.certificate)
            x = public.standard_normal((self.records, self.features)) / np.sqrt(self.features)
            np.savez(home / "data.npz", X=x, y=np.where(x @ weights > 0, 1.0, -1.0))
            with Ledger.open(home / "ledger.sqlite") as ledger:
                ledger.create("patients", BudgetPolicy(epsilon=self.budget, delta=1e-5))
        for i in range(len(self.names)):
            self.write_config(i)
        self.plan_path = self.replan()

    def fingerprint(self, name):
        return fingerprint_of(self.folder / name / "certificate.pem")

    def write_config(self, i, members=None, **policy):
        home = self.folder / self.names[i]
        others = [name for name in self.names if name != self.names[i]]
        pinned = {name: self.fingerprint(name) for name in others} if members is None else members
        text = {
            "party": {
                "name": self.names[i],
                "state": "state",
                "control": f"127.0.0.1:{self.ports[len(self.names) + i]}",
                "proposers": [self.names[0]],
            },
            "members": pinned,
            "tls": {"certificate": "certificate.pem", "key": "key.pem", "authorities": "authority.pem"},
            "data": {"path": "data.npz", "dataset": "patients"},
            "ledger": {"path": "ledger.sqlite"},
            "policy": {"max_epsilon": 2.0, "max_delta": 1e-5, "trusted": list(pinned), **policy},
            "limits": {"connect": self.connect, "message": self.message, "patience": self.patience},
        }
        (home / "party.toml").write_text(tomli_w.dumps(text))

    def wait_at_most(self, seconds, *members):
        """Let members, by default all, wait so long for the others to appear, from their next start on."""
        self.connect = seconds
        for i in members or range(len(self.names)):
            self.write_config(i)

    def replan(self, name="plan.json", **changes):
        """Make a plan of its own nonce and return its path."""
        text = {
            "name": "three hospitals",
            "mode": self.mode,
            "threshold": 1,
            "budget": {"epsilon": self.epsilon, "delta": 1e-6},
            "task": self.task or linear_task(self.features, max_iter=3, solver_options={"step_size": 2.0}),
            "members": [
                {
                    "name": member,
                    "host": "127.0.0.1",
                    "port": self.ports[i],
                    "control": f"127.0.0.1:{self.ports[len(self.names) + i]}",
                    "records": self.records,
                    "certificate": f"{member}/certificate.pem",
                }
                for i, member in enumerate(self.names)
            ],
            **changes,
        }
        (self.folder / "consortium.toml").write_text(tomli_w.dumps(text))
        path = self.folder / name
        plan_from(self.folder / "consortium.toml").save(path)
        return path

    def fork(self, i, plan=None, sabotage=None, approve=True):
        """Start one member as a fork of this process, which has imported everything already."""
        arguments = ["party", "run", "--config", str(self.config(i)), "--plan", str(plan or self.plan_path)]
        if approve:
            Approvals(self.folder / self.names[i] / "state").add(JointPlan.load(plan or self.plan_path))
        log = self.folder / self.names[i] / "log.txt"
        process = _FORK.Process(target=_child, args=(arguments, log, sabotage), daemon=True)
        process.start()
        return process

    def run(self, plans=(None,) * 9, sabotage=(None,) * 9, limit=60, approve=True):
        """Run all members to the end; return their exit codes and what they said."""
        processes = [self.fork(i, plans[i], sabotage[i], approve) for i in range(len(self.names))]
        for process in processes:
            process.join(limit)
        late = [p.is_alive() for p in processes]
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()
        assert not any(late), f"members still running after {limit} s: {late}"
        said = [(self.folder / name / "log.txt").read_text() for name in self.names]
        return [p.exitcode for p in processes], said

    @contextlib.contextmanager
    def daemons(self, *members):
        """Let members answer how a run went, without starting anything themselves."""
        started = [_FORK.Process(target=_answer, args=(self.config(i),), daemon=True) for i in members]
        for process in started:
            process.start()
        for i in members:
            while True:
                with contextlib.suppress(ConnectionError), socket.create_connection(self.control_of(i)):
                    break
                time.sleep(0.02)
        try:
            yield
        finally:
            for process in started:
                process.kill()
                process.join()

    def control_of(self, i):
        return "127.0.0.1", self.ports[len(self.names) + i]

    def config(self, i):
        return self.folder / self.names[i] / "party.toml"

    def story(self, i, plan=None):
        path = self.state(i, plan) / "transcript.jsonl"
        return read_transcript(path) if path.exists() else None

    def check_books(self, plan=None):
        """Assert that no ledger disagrees with what was opened; return the number of releases."""
        digest = JointPlan.load(plan or self.plan_path).digest
        stories = [self.story(i, plan) for i in range(3)]
        booked = [
            [e for e in self.history(i) if e.plan_digest == digest and e.status.value != "returned"]
            for i in range(3)
        ]
        opened = compare([s for s in stories if s is not None]) if any(stories) else 0
        if opened:
            assert all(len(entries) == 1 for entries in booked), "opened without everybody's reservation"
        for story, entries in zip(stories, booked):
            assert len(entries) <= 1
            if story is not None and story.status == "settled":
                assert entries[0].status.value == "settled"
            if entries and entries[0].status.value == "settled":
                assert story.releases == 3
        return opened

    def state(self, i, plan=None):
        return self.folder / self.names[i] / "state" / JointPlan.load(plan or self.plan_path).digest

    def history(self, i):
        with Ledger.open(self.folder / self.names[i] / "ledger.sqlite") as ledger:
            return ledger.history("patients")
