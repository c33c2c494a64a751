"""Private steps inside the trainers of `transformers` and of libraries that build on it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sordino.errors import InvalidInputError, PlanSpentError, UnsupportedError, require_extra
from sordino.nn.data import share_items, source_of
from sordino.nn.trainer import NOT_PUBLIC, make_private

try:
    import transformers
except ImportError:  # pragma: no cover - the extra is installed wherever tests run
    raise require_extra("transformers", "transformers") from None

# What of TrainingArguments would make the guarantee false, or do nothing: name, harmless values, reason.
_REFUSED: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("group_by_length", (False,), "batches by length depend on the records; here each is drawn by itself"),
    ("train_sampling_strategy", ("random", "sequential"), "batches by length depend on the records"),
    ("auto_find_batch_size", (False,), "it begins the training anew, and each beginning is paid for"),
    ("label_smoothing_factor", (0, 0.0), "the loss is computed record by record; smooth in loss= instead"),
    ("neftune_noise_alpha", (None,), "it changes the forward pass of the model after it was checked"),
    ("fp16", (False,), "scaled gradients are not released ones; use bf16=True"),
    ("torch_compile", (False,), "pass private={'compiled': True} instead"),
    ("deepspeed", (None,), "shards hold parts of gradients, and a part is not clipped by the whole norm"),
    ("fsdp", (None, False, "", [], ()), "make_private takes a model that fully_shard has sharded"),
    ("packing", (False,), "a packed row holds several records, and its clip bounds them together only"),
    ("padding_free", (False,), "records in one row reach each other"),
    ("use_liger_kernel", (False,), "its fused losses are not differentiated record by record"),
    ("include_num_input_tokens_seen", (False, "no"), "a count of tokens is a sum over records without noise"),
)


_THEIRS = ("transformers", "trl")
_ELSEWHERE = {
    "epsilon": "epsilon=", "delta": "delta=", "loss": "loss=", "model": "model=",
    "batch_size": "per_device_train_batch_size * gradient_accumulation_steps", "steps": "max_steps",
    "epochs": "num_train_epochs", "validation": "eval_dataset=", "callbacks": "callbacks=",
}  # fmt: skip


def _refuse(args: Any) -> None:
    for name, harmless, reason in _REFUSED:
        value = getattr(args, name, harmless[0])
        if value not in harmless:
            raise UnsupportedError(f"Expected {name}={harmless[0]!r}, got {value!r}: {reason}.")
    if args.world_size > 1 or args.n_gpu > 1:
        raise UnsupportedError(
            f"Expected one process and one device, got {args.world_size} and {args.n_gpu}. Use "
            "sordino.nn.Trainer(distributed=True) for several, or CUDA_VISIBLE_DEVICES for one."
        )


# What of a trainer is replaced here, so that one of the caller's own is not called, or lets records through.
_REPLACED = {
    "compute_loss": "it is not called, as it sees a whole batch. Pass loss(outputs, labels) of one record",
    "training_step": "gradients of its own have neither clip nor noise. Pass loss= and callbacks= instead",
    "get_train_dataloader": "batches are drawn by the curator. Pass train_dataset= and data_collator=",
    "_inner_training_loop": "nobody knows what it releases. Write the loop with sordino.nn.make_private",
}


def token_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss of the words of a record; labels of -100 are left out."""
    wanted = labels.flatten()
    total = nn.functional.cross_entropy(
        outputs.flatten(0, 1).float(), wanted, ignore_index=-100, reduction="sum"
    )
    return total / (wanted != -100).sum().clamp(min=1)


def next_word_loss(outputs: Tensor, words: Tensor) -> Tensor:
    """Return the mean loss of the next words of a record; labels of -100 are left out."""
    return token_loss(outputs[:, :-1], words[:, 1:])


def number_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the squared error of the numbers of a record."""
    return nn.functional.mse_loss(outputs.reshape(labels.shape).float(), labels.float())


def _loss_of(model: nn.Module) -> Any:
    kinds = [type(module).__name__ for module in model.modules()]
    if any(kind.endswith(("ForCausalLM", "LMHeadModel")) for kind in kinds):
        return next_word_loss
    if any(kind.endswith("ForTokenClassification") for kind in kinds):
        return token_loss
    if any(kind.endswith("Classification") for kind in kinds):
        config = getattr(model, "config", None)
        usual = "regression" if getattr(config, "num_labels", 2) == 1 else "single_label_classification"
        known = {"regression": number_loss, "multi_label_classification": nn.BCEWithLogitsLoss()}
        return known.get(getattr(config, "problem_type", None) or usual, nn.CrossEntropyLoss())
    raise InvalidInputError(
        "Expected a model for causal language or classification, or loss=: a function of outputs and labels."
    )


@contextmanager
def _own_forward(model: nn.Module) -> Iterator[None]:
    """Undo, for a block, that TRL fuses the last layer with a loss: outputs are needed here."""
    fused = []
    for part in model.modules():
        forward = vars(part).get("forward")  # its home is where it stands, whatever it says of itself
        home = getattr(getattr(forward, "__func__", forward), "__globals__", {}).get("__name__", "")
        fused += [(part, forward)] if str(home).startswith("trl.") else []
    for part, _ in fused:
        del part.forward
    try:
        yield
    finally:
        for part, forward in fused:
            part.forward = forward


class PrivateTraining:
    """Makes a trainer of `transformers`, or one that extends it, private; stands before it among the bases.

    The loop, optimiser, schedule, callbacks, evaluation and saving are the trainer's. Gradients are
    released: each training step asks for one, and no record reaches the loop. ``privacy`` has the report.

    Parameters
    ----------
    epsilon, delta : the budget of the whole training.
    loss : ``loss(outputs, labels)`` of one record; None takes that of causal language or classification.
    private : further settings of :func:`sordino.nn.make_private`: clip_norm, groups, noise, ledger ...

    The expected batch is ``per_device_train_batch_size * gradient_accumulation_steps`` records, or persons
    where ``private`` has ``groups``; as many as the first number are differentiated at once. Released
    gradients are not clipped (``max_grad_norm``).

    **Privacy.** That of :func:`sordino.nn.make_private`. What would make it false is refused by name: batches
    by length, packing, resuming, losses, steps and loaders of one's own class, quantised bases, evaluation on
    the records that are trained on. Those of ``eval_dataset`` are listed as assumed public. Training loss and
    norms of gradients are not logged.
    """

    def __init__(
        self,
        *args: Any,
        epsilon: float,
        delta: float | None = None,
        loss: Any = None,
        private: Mapping[str, Any] | None = None,
        **known: Any,
    ) -> None:
        for name in ("model_init", "compute_loss_func"):
            if known.get(name) is not None:
                raise UnsupportedError(
                    f"Expected {name}=None: pass the model itself, and loss= for its loss."
                )
        private = dict(private or {})
        for name in sorted(private.keys() & _ELSEWHERE.keys()):
            raise InvalidInputError(f"Expected private without {name!r}: it is {_ELSEWHERE[name]} here.")
        super().__init__(*args, **known)
        self._private = {"epsilon": epsilon, "delta": delta, **private}
        self._loss, self._steps, self._released = loss, None, iter(())

    def train(self: Any, resume_from_checkpoint: Any = None, **known: Any) -> Any:
        """Train; the budget is booked and spent here."""
        if resume_from_checkpoint or known.get("trial") is not None:
            raise UnsupportedError(
                "Expected a training from its beginning: releases of a training that is begun again, or of a "
                "search, would be paid once and made twice. Use sordino.nn.Trainer(checkpoint=) to resume."
            )
        if self.privacy is not None:
            raise PlanSpentError("This trainer has trained: make a new one, with a budget of its own.")
        _refuse(self.args)
        self._check_model()
        mine = self.args
        size, parts = mine.per_device_train_batch_size, mine.gradient_accumulation_steps
        self.args = copy.copy(mine)
        self.args.gradient_accumulation_steps, self.args.max_grad_norm = 1, 0.0
        self.accelerator.gradient_accumulation_steps = 1
        try:
            self._open(size * parts, size)
            out = super().train(**known)  # type: ignore[misc]
            told = {name: value for name, value in out.metrics.items() if name != "train_loss"}
            return out._replace(training_loss=math.nan, metrics=told)
        finally:
            self.args = mine
            if self._steps is not None:
                self._steps.end(self._released)

    def _check_model(self: Any) -> None:
        if getattr(self.model, "is_quantized", False) or getattr(self.model, "quantization_method", None):
            raise UnsupportedError(
                "Expected a base in float32 or bfloat16, got a quantised one: its products are not followed, "
                "so no norm of a gradient is proven. Load it without quantization_config."
            )
        for name, reason in _REPLACED.items():
            homes = [kind for kind in (self, *type(self).__mro__) if name in vars(kind)]
            own = [kind for kind in homes if kind.__module__.partition(".")[0] not in _THEIRS]
            own = [kind for kind in own if kind is not PrivateTraining]
            if own and (name != "compute_loss" or self._loss is None):
                whose = getattr(own[0], "__name__", "this trainer")
                raise UnsupportedError(f"Expected no method of one's own, got {name} of {whose}: {reason}.")

    def _open(self: Any, batch: int, at_once: int) -> None:
        args, settings = self.args, {"chunk_size": at_once, "device": self.args.device} | self._private
        loss = _loss_of(self.model) if self._loss is None else self._loss
        source = source_of(super().get_train_dataloader())  # type: ignore[misc]
        source = replace(source, batch=None).with_owners(settings.pop("groups", None))
        # Refuse evaluation on records that are trained on: their loss is logged without noise
        told = self.eval_dataset
        for public in told.values() if isinstance(told, dict) else [told]:
            if public is not None and share_items(public, self.train_dataset):
                raise UnsupportedError(NOT_PUBLIC.format(name="eval_dataset"))
        self._each = math.ceil(source.population / batch)
        steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * self._each)
        facts = () if self.eval_dataset is None else ("records of eval_dataset",)
        settings["public"] = (*facts, *settings.get("public", ()))
        if args.bf16:
            settings.setdefault("precision", torch.bfloat16)
        self.model.train()
        settings |= {"batch_size": min(batch, source.population), "steps": steps}
        with _own_forward(self.model):
            self._steps = make_private(self.model, loss, source, **settings)
        self._steps.quiet = True
        self._released = iter(self._steps)

    @property
    def privacy(self: Any) -> Any:
        """The report, once a training was begun."""
        return None if self._steps is None else self._steps.privacy

    def get_train_dataloader(self: Any) -> Any:
        """Return numbers of steps: the records stay with the curator."""
        if self._steps is None:
            return super().get_train_dataloader()  # type: ignore[misc]
        numbers: Any = [{"step": number} for number in range(self._each)]
        return torch.utils.data.DataLoader(numbers, collate_fn=lambda rows: rows[0])

    def training_step(self: Any, model: nn.Module, inputs: Any, *rest: Any, **known: Any) -> Tensor:
        """Set the gradients to released ones; nobody sees the loss of the records."""
        if next(self._released, None) is None:
            raise PlanSpentError("All steps that were paid for are spent: the trainer asks for another one.")
        return torch.zeros((), device=self.args.device)

    def floating_point_ops(self, inputs: Any) -> int:
        """Return zero: how many words a batch has is not released."""
        return 0

    def log(self: Any, logs: dict[str, float], *rest: Any, **known: Any) -> None:
        """Log what is known: neither loss nor norms of the training."""
        unknown = ("loss", "grad_norm", "train_loss", "mean_token_accuracy", "entropy", "num_tokens")
        super().log({k: v for k, v in logs.items() if k not in unknown}, *rest, **known)  # type: ignore[misc]


class PrivateTrainer(PrivateTraining, transformers.Trainer):  # type: ignore[misc]
    """``transformers.Trainer`` with a budget: a script changes the name and says ``epsilon``."""
