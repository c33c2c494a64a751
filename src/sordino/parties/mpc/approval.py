"""A member's own approval of a plan: without it nothing runs, whoever proposes it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sordino.parties.mpc.files import open_private, private_folder
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.policy import PlanRefusedError


@dataclass(frozen=True)
class Approvals:
    """The file of approved plans in a member's state folder: a digest and a time on each line.

    **Privacy.** A digest is of the whole text of a plan: one that is edited afterwards is another plan.
    """

    state: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.state / "approved"

    def __contains__(self, digest: str) -> bool:
        if not self.path.exists():
            return False
        return digest in {line.partition(" ")[0] for line in self.path.read_text("utf-8").splitlines()}

    def add(self, plan: JointPlan) -> None:
        """Approve a plan."""
        private_folder(self.state)
        with open_private(self.path, "ab") as file:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            file.write(f"{plan.digest} {now}\n".encode())

    def require(self, plan: JointPlan) -> None:
        """Refuse a plan that was not approved."""
        if plan.digest not in self:
            raise PlanRefusedError(
                f"The plan {plan.digest[:12]} is not approved here. Read it, then: sordino party approve."
            )


def in_words(plan: JointPlan) -> list[str]:
    """Return what somebody who approves a plan has to know; epsilon is computed here, not read."""
    text, found, threshold = plan.text, plan.certificate, plan.share.threshold
    members = [
        f"  {m.name}: {n} records, certificate {m.fingerprint[:16]}..."
        for m, n in zip(plan.members, plan.records)
    ]
    task = ", ".join(f"{k} {v}" for k, v in sorted(text["task"].items()))
    releases = ", ".join(f"{r.times} x {name}" for name, r in plan.kernel_plan.releases.items())
    return [
        f"Plan {plan.digest} of {text['consortium']!r}, between",
        *members,
        f"If more than {threshold} of them pool what they see, they learn more than the opened answers.",
        f"Task: {task}. Opened to all: {releases}; noise: {text['mode']}.",
        f"Cost for one {plan.public.unit} ({plan.public.relation.value}): epsilon {found.epsilon:.4g}, "
        f"delta {found.delta:.3g}.",
    ]
