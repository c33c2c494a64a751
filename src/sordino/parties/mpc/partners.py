"""Whom a member runs with, from its own settings: a coordinator cannot add anybody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sordino.errors import InvalidInputError
from sordino.parties.codes import Code, PlanRefusedError
from sordino.parties.mpc.mpyc_engine import check_threshold
from sordino.parties.mpc.plan import JointPlan


@dataclass(frozen=True)
class Partners:
    """A member's own list of the others.

    Parameters
    ----------
    name, fingerprint : this member's own.
    members : the others by name, with the SHA-256 of their certificates. A plan with anybody else is refused.
    trusted : those of them who will not hand what they see to another member.
    min_trusted : how many of the trusted must take part.
    proposers : who may propose plans to the waiting process, by name or fingerprint.

    **Privacy.** ``threshold`` members can pool what they see without learning more than the opened answers.
    So everybody in a plan who is not trusted counts as one who may, and they must be at most ``threshold``.
    """

    name: str
    fingerprint: str
    members: Mapping[str, str]
    trusted: tuple[str, ...]
    min_trusted: int = 1
    proposers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        pinned = {name: fingerprint_in(text) for name, text in self.members.items()}
        object.__setattr__(self, "members", pinned)
        others = {n: f for n, f in pinned.items() if n != self.name}
        if pinned.get(self.name, self.fingerprint) != self.fingerprint:
            raise InvalidInputError(f"[members] pins another certificate for {self.name!r} than its own.")
        if len({*others.values(), self.fingerprint}) < len(others) + 1:
            raise InvalidInputError("Two members of [members] have the same fingerprint.")
        if not set(self.trusted) <= set(others):
            unknown = sorted(set(self.trusted) - set(others))
            raise InvalidInputError(f"Expected trusted members out of {sorted(others)}, got {unknown}.")
        if not 1 <= self.min_trusted <= len(set(self.trusted)):
            raise InvalidInputError(
                f"Expected min_trusted in [1, {len(set(self.trusted))}], the number of trusted members, got "
                f"{self.min_trusted}."
            )
        object.__setattr__(self, "proposers", tuple(self._proposer(p) for p in self.proposers))

    def may_propose(self, fingerprint: str) -> bool:
        """Tell whether plans are taken from the holder of this certificate."""
        return fingerprint in self.proposers

    def may_ask(self, fingerprint: str) -> bool:
        """Tell whether the holder of this certificate may hear how a plan is going."""
        known = {*self.members.values(), self.fingerprint, *self.proposers}
        return bool(fingerprint) and fingerprint in known

    def _proposer(self, text: str) -> str:
        if text == self.name:
            return self.fingerprint
        return self.members[text] if text in self.members else fingerprint_in(text)


def check_partners(plan: JointPlan, partners: Partners) -> None:
    """Refuse a plan of others than one's own list, or with too many who may collude."""
    check_threshold(len(plan.members), plan.share.threshold)
    names = [m.name for m in plan.members]
    prints = [m.fingerprint for m in plan.members]
    if names.count(partners.name) != 1:
        raise _refusal(f"Expected {partners.name!r} once among the plan's parties, got {names}.")
    if len(set(names)) < len(names) or len(set(prints)) < len(prints):
        raise _refusal("Two parties of the plan have the same name or the same certificate.")
    if prints[names.index(partners.name)] != partners.fingerprint:
        raise _refusal(f"The plan pins another certificate for {partners.name!r} than mine.")
    others = [(n, f) for n, f in zip(names, prints) if n != partners.name]
    for name, fingerprint in others:
        if partners.members.get(name) != fingerprint:
            raise _refusal(
                f"{name!r} with the certificate {fingerprint[:16]}... is not in [members] of "
                f"{partners.name!r}. Whom to run with is its own decision."
            )
    _check_collusion(plan, partners, [name for name, _ in others])


def _check_collusion(plan: JointPlan, partners: Partners, others: list[str]) -> None:
    trusted = [name for name in others if name in partners.trusted]
    if len(trusted) < partners.min_trusted:
        raise _refusal(
            f"Expected at least {partners.min_trusted} trusted members (min_trusted), the plan has {trusted}."
        )
    suspects, threshold = sorted(set(others) - set(trusted)), plan.share.threshold
    if len(suspects) > threshold:
        raise _refusal(
            f"{suspects} are not trusted and may pool what they see: more than the plan's threshold of "
            f"{threshold}."
        )


def _refusal(message: str) -> PlanRefusedError:
    return PlanRefusedError(message, Code.MEMBERS)


def fingerprint_in(text: object) -> str:
    """Read a SHA-256 fingerprint, with or without the colons of openssl."""
    found = str(text).replace(":", "").lower()
    if not re.fullmatch("[0-9a-f]{64}", found):
        raise InvalidInputError(
            "Expected a name of [members], or the SHA-256 fingerprint of a certificate (64 hexadecimal "
            f"digits), got {str(text)[:80]!r}."
        )
    return found
