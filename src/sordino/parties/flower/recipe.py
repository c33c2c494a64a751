"""What all members of a federated run agree on before the first round."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from sordino.kernel import Full, Poisson, Relation, Sampling
from sordino.solvers.base import count, positive

# The keys of a Flower configuration, which has no None: 0 stands for it.
_KEYS = {
    "rounds": "rounds",
    "local-steps": "local_steps",
    "batch-size": "batch_size",
    "nonzero-weights": "sparsity",
    "step-size": "step_size",
    "clip-norm": "clip_norm",
    "decay": "decay",
    "relation": "relation",
}


@dataclass(frozen=True)
class FederatedRecipe:
    r"""The public numbers of DP-FedSGD-HT and its kin.

    Round: each client makes ``local_steps`` steps ``w_i <- H_k(w_i - step g_i)`` with noisy gradients of its
    own records, the server sets ``w <- H_k(sum_i p_i w_i)``.

    Parameters
    ----------
    rounds, local_steps : how many rounds, and how many noisy gradients a client releases in each.
    batch_size : the expected size of a client's Poisson batches (FedSGD); None looks at all of its records
        in each step (FedGD).
    sparsity : the number of weights that are not zero, k; None keeps all of them.
    step_size, decay : the step of round t is ``step_size * decay**(t - 1)``.
    clip_norm : the norm to which the gradient of each record is clipped.
    relation : which data sets are neighbours.

    Examples
    --------
    >>> recipe = FederatedRecipe(rounds=50, local_steps=10, batch_size=60, sparsity=100)
    >>> recipe.releases, recipe.sampling(6000)
    (500, Poisson(rate=0.01))
    """

    rounds: int
    local_steps: int = 10
    batch_size: int | None = None
    sparsity: int | None = None
    step_size: float = 0.1
    clip_norm: float = 1.0
    decay: float = 1.0
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        count("rounds", self.rounds)
        count("local_steps", self.local_steps)
        for name in ("batch_size", "sparsity"):
            if getattr(self, name) is not None:
                count(name, getattr(self, name))
        for name, most in (("step_size", float("inf")), ("clip_norm", float("inf")), ("decay", 1.0)):
            positive(name, getattr(self, name), most)
        object.__setattr__(self, "relation", Relation.parse(self.relation))

    @property
    def releases(self) -> int:
        """The number of gradients each client pays for."""
        return self.rounds * self.local_steps

    def sampling(self, population: int) -> Sampling:
        """Return the batches of a client with this many records: rate b / n_i, or all of them."""
        if self.batch_size is None or self.batch_size >= population:
            return Full()
        return Poisson(self.batch_size / population)

    def step_of(self, attempt: int) -> float:
        """Return the step size of a client's round number ``attempt``, from 0."""
        return float(self.step_size * self.decay**attempt)

    def algorithm(self, private: bool = True) -> str:
        """Return the name of the algorithm in the literature."""
        return f"{'DP-' if private else ''}Fed{'GD' if self.batch_size is None else 'SGD'}-HT"

    @property
    def digest(self) -> str:
        """A fingerprint: client and server compare it before anything is released."""
        text = json.dumps({**asdict(self), "relation": self.relation.value}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_config(self) -> dict[str, Any]:
        """Return the numbers under the keys of a Flower configuration."""
        values = {key: getattr(self, name) for key, name in _KEYS.items()}
        values["relation"] = self.relation.value
        return {key: 0 if value is None else value for key, value in values.items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_config` writes, say in ``[tool.flwr.app.config]``; other keys are ignored."""
        values = {name: config[key] for key, name in _KEYS.items() if key in config}
        for name in ("batch_size", "sparsity"):
            values[name] = values.get(name) or None
        return cls(**values)
