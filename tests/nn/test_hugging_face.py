"""A script for `transformers.Trainer` becomes private by another class and a budget, and by nothing else."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import sordino.nn as private  # whose trainer loads half of transformers, when it is first named
from sordino.errors import InvalidInputError, PlanSpentError, PrivacyWarning, UnsupportedError
from sordino.nn import Trainer, make_private
from sordino.testing import seeded_noise_not_private

transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
WORDS, LENGTH, COUNT = 30, 6, 40
QUIET = {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}


def distilbert(**known):
    torch.manual_seed(0)
    sizes = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 12, "vocab_size": WORDS, "num_labels": 3}
    config = transformers.DistilBertConfig(**sizes, max_position_embeddings=LENGTH, **known)
    return transformers.DistilBertForSequenceClassification(config)


def gpt2():
    torch.manual_seed(0)
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": LENGTH, "vocab_size": WORDS}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))


def rows(causal=False):
    torch.manual_seed(1)
    words = torch.randint(3, WORDS, (COUNT, LENGTH))
    labels = words if causal else torch.arange(COUNT) % 3
    mask = torch.ones_like(words)
    return [
        {"input_ids": w, "attention_mask": m, "labels": y}
        for w, m, y in zip(words, mask, labels, strict=True)
    ]


def arguments(folder, **known):
    usual = {
        "max_steps": 4, "per_device_train_batch_size": 8, "report_to": [], "save_strategy": "no",
        "disable_tqdm": True, "use_cpu": True, "learning_rate": 0.05, "optim": "sgd", "logging_steps": 1,
    }  # fmt: skip
    return transformers.TrainingArguments(str(folder), **(usual | known))


def trainer(folder, model=None, data=None, known=None, **more):
    settings = {"epsilon": 8.0, "delta": 1e-4} | more
    return private.PrivateTrainer(
        model or distilbert(), arguments(folder, **(known or {})), train_dataset=data or rows(), **settings
    )


def test_a_training_has_the_report_and_the_steps_that_were_paid_for(tmp_path):
    made = trainer(tmp_path)
    before = [p.clone() for p in made.model.parameters()]
    out = made.train()
    assert math.isnan(out.training_loss)
    assert "train_loss" not in out.metrics
    assert out.global_step == made.privacy.releases[0].times == 4
    assert 7.9 < made.privacy.epsilon <= 8.0
    assert made.privacy.is_private
    assert any(not torch.equal(a, b) for a, b in zip(before, made.model.parameters(), strict=True))
    told = {name for entry in made.state.log_history for name in entry}
    assert not {"loss", "grad_norm", "train_loss"} & told
    with pytest.raises(PlanSpentError, match="make a new one"):
        made.train()


def test_it_makes_the_steps_of_the_trainer_of_this_library(tmp_path):
    """Same noise, same batches, plain descent at a constant rate: the same model, but for rounding."""
    with seeded_noise_not_private(3):
        made = trainer(tmp_path, distilbert(**QUIET), known={"lr_scheduler_type": "constant"})
        made.train()
    data = {"input_ids": torch.stack([r["input_ids"] for r in rows()])}
    data["attention_mask"] = torch.ones_like(data["input_ids"])
    ours = Trainer(
        distilbert(**QUIET).train(), nn.CrossEntropyLoss(), 8.0, 1e-4, steps=4, batch_size=8, chunk_size=8,
        learning_rate=0.05, schedule=lambda progress: 1.0, optimizer_options={"momentum": 0.0},
    )  # fmt: skip
    with seeded_noise_not_private(3):
        theirs = ours.fit(data, torch.arange(COUNT) % 3)
    for a, b in zip(made.model.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), atol=1e-5, rtol=1e-4)


def test_accumulated_batches_are_one_batch_of_that_many_records(tmp_path):
    made = trainer(tmp_path, known={"gradient_accumulation_steps": 3, "max_steps": -1, "num_train_epochs": 2})
    made.train()
    assert made.privacy.releases[0].sampling == f"Poisson(rate={24 / 40})"
    assert made.privacy.releases[0].times == made.state.global_step == 4  # two steps an epoch
    assert made.args.gradient_accumulation_steps == 3


def test_a_language_model_with_an_adapter_trains_the_adapter_alone(tmp_path):
    peft = pytest.importorskip("peft", reason="needs the extra 'transformers'")
    model = peft.get_peft_model(gpt2(), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    made = trainer(tmp_path, model, rows(causal=True))
    made.train()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved
    assert all("lora_" in name for name in moved)


def test_evaluation_is_said_to_be_on_public_records_and_callbacks_may_stop(tmp_path):
    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **rest):
            control.should_training_stop = state.global_step == 2

    made = trainer(
        tmp_path, known={"eval_strategy": "steps", "eval_steps": 2}, eval_dataset=rows(), callbacks=[Stop()]
    )
    assert made.train().global_step == 2
    assert "records of eval_dataset" in made.privacy.public
    assert any("eval_loss" in entry for entry in made.state.log_history)


def test_a_training_that_ends_is_settled_on_its_ledger(tmp_path):
    from sordino.ledger import BudgetPolicy, Ledger

    ledger = Ledger.open(tmp_path / "books.sqlite")
    ledger.create("texts", BudgetPolicy(epsilon=9.0, delta=1e-3))
    made = trainer(tmp_path, private={"ledger": ledger, "dataset_id": "texts"})
    made.train()
    (entry,) = ledger.history("texts")
    assert entry.status == "settled"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha"),
        ({"torch_compile": True}, "torch_compile"),
        ({"include_num_input_tokens_seen": "all"}, "include_num_input_tokens_seen"),
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy"),
    ],
)
def test_settings_that_would_make_it_false_are_refused_by_name(tmp_path, known, said):
    try:
        made = trainer(tmp_path, known=known)
    except TypeError:
        pytest.skip("this version of transformers has no such setting")
    with pytest.raises(UnsupportedError, match=said):
        made.train()
    assert made.privacy is None


def test_packing_of_a_trainer_that_has_it_is_refused(tmp_path):
    made = trainer(tmp_path)
    made.args.packing = True
    with pytest.raises(UnsupportedError, match=r"packing=False.*several records"):
        made.train()


def test_a_second_beginning_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="paid once and made twice"):
        trainer(tmp_path).train(resume_from_checkpoint=True)


def test_losses_of_a_batch_are_refused(tmp_path):
    class Own(private.PrivateTraining, transformers.Trainer):
        def compute_loss(self, model, inputs, *rest, **known):
            return model(**inputs).loss

    made = Own(distilbert(), arguments(tmp_path), train_dataset=rows(), epsilon=1.0)
    with pytest.raises(UnsupportedError, match="compute_loss of Own"):
        made.train()
    with pytest.raises(UnsupportedError, match="compute_loss_func=None"):
        trainer(tmp_path, compute_loss_func=lambda outputs, labels, n: outputs)


@pytest.mark.parametrize("way", ["subclass", "base", "instance"])
@pytest.mark.parametrize("name", ["training_step", "get_train_dataloader", "_inner_training_loop"])
def test_steps_and_loaders_of_ones_own_are_refused_before_anything_is_booked(tmp_path, name, way):
    """They trained on the records without clip or noise, under a report that said private."""

    def own(self, *rest, **known):
        raise AssertionError("it must not be called")

    bases = {"base": (private.PrivateTraining, type("Base", (transformers.Trainer,), {name: own}))}
    kind = type("Own", bases.get(way, (private.PrivateTrainer,)), {name: own} if way == "subclass" else {})
    made = kind(distilbert(), arguments(tmp_path), train_dataset=rows(), epsilon=1.0)
    if way == "instance":
        setattr(made, name, own)
    with pytest.raises(UnsupportedError, match=f"got {name} of (Own|Base|this trainer)"):
        made.train()
    assert made.privacy is None


def test_a_callback_that_differentiates_the_records_leaves_no_guarantee(tmp_path):
    class Own(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **rest):
            some = {name: torch.stack([r[name] for r in rows()[:4]]) for name in rows()[0]}
            model(**some).loss.backward()

    made = trainer(tmp_path, callbacks=[Own()])
    with pytest.warns(PrivacyWarning, match="backward pass"):
        made.train()
    assert not made.privacy.is_private
    assert "backward pass of the caller's own" in made.privacy.guarantee


@pytest.mark.parametrize("way", ["itself", "a part", "a name", "a subset"])
def test_records_that_are_trained_on_are_no_public_ones(tmp_path, way):
    data = rows()
    whole = torch.utils.data.Subset(data, range(30)) if way == "a subset" else data
    told = {"itself": data, "a part": data[:5], "a name": {"some": data[3:4]}}
    public = told.get(way, torch.utils.data.Subset(data, [29, 33]))
    made = trainer(tmp_path, data=whole, known={"eval_strategy": "epoch"}, eval_dataset=public)
    with pytest.raises(UnsupportedError, match="public records as eval_dataset"):
        made.train()
    assert made.privacy is None
    other = torch.utils.data.Subset(data, [31, 33]) if way == "a subset" else rows()
    trainer(tmp_path, data=whole, known={"eval_strategy": "epoch"}, eval_dataset=other).train()


def test_epochs_count_persons_where_records_have_owners(tmp_path):
    data, owners = rows(), [i // 4 for i in range(COUNT)]
    made = trainer(
        tmp_path, data=data, known={"max_steps": -1, "num_train_epochs": 2}, private={"groups": owners}
    )
    made.train()
    (release,) = made.privacy.releases
    assert release.sampling == "Poisson(rate=0.8)"  # 8 of 10 persons
    assert release.times == made.state.global_step == 4  # two an epoch; by records they were ten


def test_a_stream_is_refused_in_words(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(rows())

    with pytest.raises(InvalidInputError, match="read a stream into a list"):
        trainer(tmp_path, data=Stream()).train()


def test_a_sampler_of_ones_own_is_refused_by_name(tmp_path):
    class Own(private.PrivateTrainer):
        def _get_train_sampler(self, *rest, **known):
            return torch.utils.data.WeightedRandomSampler(torch.ones(COUNT), COUNT)

    with pytest.raises(UnsupportedError, match="WeightedRandomSampler"):
        Own(distilbert(), arguments(tmp_path), train_dataset=rows(), epsilon=1.0).train()


@pytest.mark.parametrize(
    ("private", "said"),
    [
        ({"epsilon": 3.0}, "it is epsilon= here"),
        ({"delta": 1e-6}, "it is delta= here"),
        ({"batch_size": 3}, "per_device_train_batch_size"),
        ({"steps": 3}, "max_steps"),
        ({"clipnorm": 1.0}, r"got 'clipnorm'\. Pass clip_norm="),
        ({"max_grad_norm": 1.0}, r"got 'max_grad_norm'\. Pass clip_norm="),
    ],
)
def test_a_setting_that_is_said_twice_or_otherwise_is_refused_with_its_word(tmp_path, private, said):
    with pytest.raises(InvalidInputError, match=said):
        trainer(tmp_path, private=private).train()


SHAPES = {"vocab_size": WORDS, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
SHAPES |= {"intermediate_size": 12, "max_position_embeddings": LENGTH, "hidden_dropout_prob": 0.0}


@pytest.mark.parametrize(
    ("kind", "config", "label"),
    [
        ("TokenClassification", {"num_labels": 4}, lambda words: words % 4),
        ("SequenceClassification", {"num_labels": 1}, lambda words: float(words[0]) / 10),
        (
            "SequenceClassification",
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            lambda words: (words[:3] % 2).float(),
        ),
    ],
)
def test_words_numbers_and_several_labels_have_the_loss_of_transformers(tmp_path, kind, config, label):
    """One step of plain descent without noise is that of the mean of the losses the model itself computes."""
    torch.manual_seed(0)
    made = transformers.BertConfig(**SHAPES, **config, attention_probs_dropout_prob=0.0)
    model = getattr(transformers, f"BertFor{kind}")(made)
    data = [r | {"labels": label(r["input_ids"])} for r in rows()]
    batch = transformers.default_data_collator(data)
    expected = torch.autograd.grad(model.train()(**batch).loss, list(model.parameters()), allow_unused=True)
    before = [p.detach().clone() for p in model.parameters()]
    known = {"max_steps": 1, "per_device_train_batch_size": COUNT, "lr_scheduler_type": "constant"}
    trainer(tmp_path, model, data, known, epsilon=math.inf, private={"clip_norm": 1e4}).train()
    for old, new, slope in zip(before, model.parameters(), expected, strict=True):
        moved = torch.zeros_like(old) if slope is None else slope
        torch.testing.assert_close(old - new.detach(), 0.05 * moved, atol=2e-6, rtol=1e-3)


def test_a_quantised_base_is_refused(tmp_path):
    model = distilbert()
    model.is_quantized = True
    made = trainer(tmp_path)
    made.model.is_quantized = True
    with pytest.raises(UnsupportedError, match="quantised"):
        made.train()


def test_a_model_without_a_known_loss_asks_for_one(tmp_path):
    data = [{"input": torch.zeros(2), "labels": torch.zeros(1)} for _ in range(9)]
    with pytest.raises(InvalidInputError, match="or loss="):
        trainer(tmp_path, nn.Linear(2, 1), data).train()


def test_records_of_many_lengths_are_refused_before_anything_is_booked(tmp_path):
    data = [r | {"input_ids": r["input_ids"][: 3 + i % 2], "attention_mask": r["attention_mask"][: 3 + i % 2]}
            for i, r in enumerate(rows())]  # fmt: skip
    made = trainer(tmp_path, data=data)
    with pytest.raises(InvalidInputError, match=r"pad to a public length|shape"):
        made.train()
    assert made.privacy is None


def test_what_is_saved_loads_as_a_model_of_transformers(tmp_path):
    made = trainer(tmp_path, known={"save_strategy": "steps", "save_steps": 4})
    made.train()
    folder = next(tmp_path.glob("checkpoint-4"))
    assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == 4
    back = transformers.DistilBertForSequenceClassification.from_pretrained(folder)
    for a, b in zip(back.parameters(), made.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_tutorial_runs_with_a_hub_that_is_a_folder(tmp_path, monkeypatch, capsys):
    pytest.importorskip("peft", reason="needs the extra 'transformers'")
    text = (Path(__file__).resolve().parents[2] / "docs" / "language-models.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 50}
    config = transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)
    transformers.GPT2LMHeadModel(config).save_pretrained("hub/small-gpt2")
    words = torch.randint(3, 50, (80, 1))
    torch.save((words + torch.arange(16)) % 47 + 3, "notes.pt")  # each word is followed by the next one
    names = {}
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)):
        exec(compile(block, f"language-models.md, block {number}", "exec"), names)
    assert names["trainer"].state.global_step == 10  # two batches of 64 an epoch
    assert "epsilon = 7.99" in capsys.readouterr().out
    assert Path("adapter/adapter_config.json").exists()


def test_a_model_prepared_by_accelerate_takes_the_steps(tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="comes with the extra 'transformers'")
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.linspace(-1, 1, 90).reshape(30, 3), torch.arange(30) % 2
    steps = make_private(model, nn.CrossEntropyLoss(), (x, y), epsilon=3.0, delta=1e-4, steps=3, batch_size=9)
    model, optimizer = accelerate.Accelerator(cpu=True).prepare(model, optimizer)
    before = model.weight.detach().clone()
    for _ in steps:
        optimizer.step()
    assert not torch.equal(before, model.weight)
