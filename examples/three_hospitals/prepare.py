"""Prepare three hospitals on one machine: certificates, records, budgets, settings and a plan.

    python examples/three_hospitals/prepare.py hospitals
    sordino party approve --config hospitals/north/party.toml hospitals/plan.json    # each of the three
    sordino party serve --config hospitals/north/party.toml    # one terminal each: north, south, west
    sordino consortium run --plan hospitals/plan.json --config hospitals/north/party.toml

A real consortium never makes keys in one place: each member makes its own and sends only the certificate;
and each writes its own list of members, after comparing fingerprints on another channel (say, by telephone).
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np

from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.mpc.consortium import plan_from
from sordino.parties.mpc.links import fingerprint_of

NAMES = ("north", "south", "west")
CONSORTIUM = """name = "three hospitals"
mode = "{mode}"          # or "secure-aggregation", for long vectors
threshold = 1                 # any one hospital may be curious

[budget]
epsilon = 1.0
delta = 1e-6
relation = "add-remove"
unit = "record"

[task]
estimator = "SparseLogisticRegression"
features = {features}

[task.params]                 # those of the estimator
classes = [0, 1]              # the labels in the records of all members
data_norm = 1.0               # rows are clipped to this length
solver = "{solver}"
{options}"""
OPTIONS = """alpha = 0.001
max_iter = {steps}
step_size = 4.0
"""
MEMBER = """
[[members]]
name = "{name}"
host = "127.0.0.1"
port = {port}
control = "127.0.0.1:{control}"
records = {records}
certificate = "{name}/certificate.pem"
"""
PARTY = """[party]
name = "{name}"
state = "state"               # transcripts and results
control = "127.0.0.1:{control}"
proposers = ["north"]         # whose proposals are listened to

[members]                     # whom this hospital runs with: SHA-256 of their certificates
{others}

[tls]
certificate = "certificate.pem"
key = "key.pem"
authorities = "authority.pem"

[data]
path = "records.npz"          # X and y, or a CSV with a header whose last column is y
dataset = "patients"

[ledger]
path = "ledger.sqlite"

[policy]
max_epsilon = 1.0             # of one plan
max_delta = 1e-5
min_parties = 3
trusted = [{trusted}]    # who will not hand what it sees to another one

[limits]                      # seconds
connect = 60.0                # for the others to appear
message = 30.0                # for a sign of life of another one
work = 3600.0                 # for its next message, while it gives signs of life
"""


def openssl(*words: str, folder: Path) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_authority(folder: Path) -> None:
    """Make the authority that signs the members' certificates."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", "/CN=three hospitals", "-days", "30"]
    openssl(
        "req",
        "-x509",
        *curve,
        "-keyout",
        "authority-key.pem",
        "-out",
        "authority.pem",
        *subject,
        folder=folder,
    )


def make_certificate(folder: Path, name: str) -> None:
    """Make a member's key and have its certificate signed."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    own = folder / name
    openssl("req", *curve, "-keyout", "key.pem", "-out", "request.pem", "-subj", f"/CN={name}", folder=own)
    sign = ["-CA", "../authority.pem", "-CAkey", "../authority-key.pem", "-CAcreateserial", "-days", "30"]
    openssl("x509", "-req", "-in", "request.pem", "-out", "certificate.pem", *sign, folder=own)
    (own / "authority.pem").write_bytes((folder / "authority.pem").read_bytes())


def make_records(path: Path, records: int, features: int, seed: int) -> None:
    """Write made-up patients: the same disease everywhere, another mix of patients in each place."""
    public = np.random.default_rng(seed)
    weights = np.random.default_rng(0).standard_normal(features)
    x = public.standard_normal((records, features)) + 0.3 * public.standard_normal(features)
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    y = (x @ weights + 0.2 * public.standard_normal(records) > 0).astype(int)
    np.savez(path, X=x, y=y)


def write_settings(folder: Path, name: str, control: int) -> None:
    """Write a hospital's own settings, with the fingerprints of the other two."""
    others = [other for other in NAMES if other != name]
    prints = [f'{other} = "{fingerprint_of(folder / other / "certificate.pem")}"' for other in others]
    trusted = ", ".join(f'"{other}"' for other in others)
    text = PARTY.format(name=name, control=control, others="\n".join(prints), trusted=trusted)
    (folder / name / "party.toml").write_text(text)


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--solver", default="auto", help="'auto', or 'ight' (MPC Grad P) with --steps")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--mode", default="noise-inside")
    parser.add_argument("--port", type=int, default=26500, help="the first of six")
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    make_authority(given.folder)
    options = "" if given.solver == "auto" else OPTIONS.format(steps=given.steps)
    facts = {"mode": given.mode, "features": given.features, "solver": given.solver}
    text = CONSORTIUM.format(**facts, options=options)
    for i, name in enumerate(NAMES):
        home, control = given.folder / name, given.port + 3 + i
        home.mkdir()
        make_certificate(given.folder, name)
        make_records(home / "records.npz", given.records, given.features, seed=i + 1)
        with Ledger.open(home / "ledger.sqlite") as ledger:
            ledger.create("patients", BudgetPolicy(epsilon=3.0, delta=1e-5))
        text += MEMBER.format(name=name, port=given.port + i, control=control, records=given.records)
    for i, name in enumerate(NAMES):
        write_settings(given.folder, name, given.port + 3 + i)
    (given.folder / "consortium.toml").write_text(text)
    plan = plan_from(given.folder / "consortium.toml")
    plan.save(given.folder / "plan.json")
    print(f"Plan {plan.digest[:12]} with epsilon {plan.certificate.epsilon:.4g} in {given.folder}.")


if __name__ == "__main__":
    main()
