"""A member's own approval of a plan: without it nothing runs, whoever proposes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sordino.parties.codes import Code, PlanRefusedError
from sordino.parties.mpc.files import open_private, private_folder
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.rehearsal import seconds_of
from sordino.parties.words import shown as quoted


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
            said = f"The plan {plan.digest[:12]} is not approved here. Read it, then: sordino party approve."
            raise PlanRefusedError(said, Code.APPROVAL)


def shown(value: Any) -> str:
    """Return a word of a plan as it may stand on a screen, all of it but for very long lists."""
    return quoted(value, 2000)


def in_words(plan: JointPlan) -> list[str]:
    """Return what somebody who approves a plan has to know, a line for each fact.

    Epsilon is computed here, not read. Words of the plan are quoted in printable ASCII: nothing in it can
    begin a line of its own, or move the cursor.
    """
    text, found, threshold = plan.text, plan.certificate, plan.share.threshold
    members = [
        f"  {shown(row['name'])}: {row['records']} records, at {shown(row['host'])} port {row['port']}"
        f"{_control(row)}, certificate {row['fingerprint']}"
        for row in text["members"]
    ]
    facts = {**text["task"], **{f"options.{k}": v for k, v in text["task"].get("options", {}).items()}}
    facts.pop("options", None)
    releases = [f"  {r.times} x {name}" for name, r in plan.kernel_plan.releases.items()]
    return [
        f"Plan {plan.digest} of {shown(text['consortium'])}, between",
        *members,
        f"If more than {threshold} of them pool what they see, they learn more than the opened answers.",
        "Task:",
        *(f"  {shown(k)[1:-1]} = {shown(v)}" for k, v in sorted(facts.items())),
        *(f"  {bound}" for bound in plan.task.bounds),
        f"Opened to all, {plan.coordinates} numbers at most, noise {text['mode']}:",
        *releases,
        f"Work: about {in_time(seconds_of(plan.coordinates, plan.share))} of processor time for each member.",
        f"Cost for one {plan.public.unit} ({plan.public.relation.value}): epsilon {found.epsilon:.4g}, "
        f"delta {found.delta:.3g}.",
    ]


def _control(row: Mapping[str, Any]) -> str:
    return f", control {shown(row['control'])}" if "control" in row else ""


def in_time(seconds: float) -> str:
    """Return a time as a person says it."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
