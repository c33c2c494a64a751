"""Models of transformers and adapters of peft run as they are: by ghost norms, with masks."""

import math

import pytest
import torch
from tests.nn.helpers import reading
from torch import nn

from sordino.errors import InvalidInputError
from sordino.nn import Trainer, make_private
from sordino.nn.data import Fields
from sordino.nn.engine_choice import make_engine
from sordino.nn.network import Network, quiet_dropout
from sordino.nn.trainer import check_moved

transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
torch.set_num_threads(1)
WORDS, LENGTH, COUNT = 40, 8, 6
SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "vocab_size": WORDS, "max_position_embeddings": 16,
}  # fmt: skip


def next_word(outputs, words):
    return nn.functional.cross_entropy(outputs[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def bert():
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL, num_labels=3))


def distilbert():
    sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "vocab_size": WORDS}
    config = transformers.DistilBertConfig(**sizes, max_position_embeddings=16, num_labels=3)
    return transformers.DistilBertForSequenceClassification(config)


def gpt2():
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16, "vocab_size": WORDS}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=1))


def lora():
    peft = pytest.importorskip("peft", reason="needs the extra 'transformers'")
    config = peft.LoraConfig(r=2, target_modules=["q_lin", "v_lin"], task_type="SEQ_CLS")
    return peft.get_peft_model(distilbert(), config)


MODELS = {"bert": bert, "distilbert": distilbert, "gpt2": gpt2, "llama": llama, "lora": lora}


def records(name, count=COUNT):
    torch.manual_seed(0)
    words = torch.randint(0, WORDS, (count, LENGTH))
    mask = (torch.arange(LENGTH) < torch.randint(2, LENGTH + 1, (count, 1))).long()
    causal = name in ("gpt2", "llama")
    return {"input_ids": words, "attention_mask": mask}, words if causal else torch.arange(count) % 3


def network_of(name):
    x, y = records(name)
    torch.manual_seed(1)
    fields = Fields.of(x)
    loss = next_word if name in ("gpt2", "llama") else nn.CrossEntropyLoss()
    return Network(MODELS[name](), loss, fields=fields), fields.pack(x), y


LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("bert", "llama")]


@pytest.mark.parametrize("name", ["distilbert", "gpt2", "lora", *LONG])
def test_a_model_as_it_is_is_clipped_by_ghost_norms(name):
    network, x, y = network_of(name)
    engine = make_engine(network, x[:1], y[:1])
    assert engine.method == "ghost"
    assert engine.unknown() == {}
    vector = network.flat() + 0.02 * torch.randn(network.size)
    with quiet_dropout(network.model):
        rows = torch.stack([one(network, vector, a, b) for a, b in zip(x, y, strict=True)])
        clip = 0.7 * float(rows.norm(dim=1).median())
        want = (rows * (clip / rows.norm(dim=1)).clamp(max=1)[:, None]).sum(dim=0)
        got = engine.clipped_sum(vector, x, y, clip)
    assert float((got - want).norm()) <= 1e-3 * clip


def one(network, vector, x, y):
    leaf = vector.clone().requires_grad_()
    return torch.autograd.grad(network.loss_of_one(leaf, x, y), leaf)[0]


def test_what_stands_behind_the_mask_of_a_record_moves_nothing():
    network, x, y = network_of("distilbert")
    engine = make_engine(network, x[:1], y[:1])
    other = x.clone()
    gone = x[:, LENGTH:] == 0
    other[:, :LENGTH][gone] = (other[:, :LENGTH][gone] + 7) % WORDS
    assert bool(gone.any())
    with quiet_dropout(network.model):
        first, second = (engine.clipped_sum(network.flat(), a, y, 0.1) for a in (x, other))
    # the table of words is not touched at what is masked
    assert float((first - second).norm()) <= 1e-6


def test_an_adapter_is_trained_and_nothing_else():
    model = lora()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = records("lora", 60)
    trainer = Trainer(model, nn.CrossEntropyLoss(), epsilon=8.0, delta=1e-5, steps=3, batch_size=20)
    trained = trainer.fit(x, y)
    after = trained.model.state_dict()
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert moved == {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained.privacy.notes[0].startswith("gradients by ghost")


def test_an_adapter_on_a_base_in_half_precision_is_trained_by_ghost_norms():
    x, y = records("lora", 40)
    model = lora().to(torch.bfloat16)
    with pytest.raises(InvalidInputError, match=r"precision=torch\.bfloat16"):
        Trainer(model, nn.CrossEntropyLoss(), epsilon=3.0, delta=1e-5, steps=2, batch_size=10).fit(x, y)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), 3.0, 1e-5, steps=2, batch_size=10, precision=torch.bfloat16
    )
    assert "gradients by ghost" in trainer.fit(x, y).privacy.notes


def test_a_data_set_of_mappings_is_read_item_by_item():
    x, y = records("bert", 30)
    rows = [
        {"input_ids": a, "attention_mask": m, "labels": b} for a, m, b in zip(*x.values(), y, strict=True)
    ]
    model, steps = bert(), 0
    loop = make_private(model, nn.CrossEntropyLoss(), rows_of(rows), epsilon=8.0, delta=1e-5, steps=2)
    for _ in reading(loop):
        steps += 1
        assert all(math.isfinite(float(p.grad.norm())) for p in model.parameters())
    assert steps == 2


def rows_of(rows):
    return torch.utils.data.DataLoader(rows, batch_size=4)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"input_ids": torch.zeros(3, 4, dtype=torch.long), "mask": torch.zeros(3, 4)}, "whole numbers"),
        ({"input_ids": torch.zeros(3, 4), "mask": torch.zeros(2, 4)}, "one row for each"),
    ],
)
def test_inputs_that_cannot_lie_side_by_side_are_refused(inputs, said):
    with pytest.raises(InvalidInputError, match=said):
        Fields.of(inputs)


def test_a_record_of_another_length_is_refused():
    fields = Fields.of({"input_ids": torch.zeros(3, 4, dtype=torch.long)})
    with pytest.raises(InvalidInputError, match="public length"):
        fields.pack({"input_ids": torch.zeros(1, 5, dtype=torch.long)})
    with pytest.raises(InvalidInputError, match="attention_mask"):
        fields.pack({"attention_mask": torch.zeros(1, 4, dtype=torch.long)})


def test_parameters_that_stay_and_frozen_ones_that_move_are_named():
    before, after = nn.Linear(2, 2), nn.Linear(2, 2)
    after.load_state_dict(before.state_dict())
    with pytest.warns(UserWarning, match=r"1 of 1.*'weight'"):
        check_moved(before, after, ("weight",))
    with torch.no_grad():
        after.bias.add_(1.0)
        after.weight.add_(1.0)
    with pytest.raises(Exception, match=r"'bias'.*has moved"):
        check_moved(before, after, ("weight",))
