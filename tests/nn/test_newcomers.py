"""What newcomers do: it works, or is refused in our words before anything is booked."""

import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.nn.helpers import blobs
from torch import nn

import sordino
from sordino.errors import InvalidInputError, InvalidTypeError, SordinoError, UnsupportedError
from sordino.nn import NeuralClassifier, Trainer, make_private, replace_batch_norm

ENTROPY = nn.CrossEntropyLoss()


def fitted(model, loss=ENTROPY, data=None, **settings):
    return Trainer(model, loss, epsilon=3.0, delta=1e-3, steps=2, **settings).fit(*(data or (blobs(40),))[0])


def linear(outputs=3):
    torch.manual_seed(0)
    return nn.Linear(6, outputs)


class Named(nn.Module):
    """A linear layer, and a parameter that is read by one of many ways."""

    def __init__(self, how):
        super().__init__()
        self.how, self.head = how, nn.Linear(6, 3)
        self.hidden = nn.Linear(6, 6)
        self.kept = {"list": [self.hidden.weight], "layers": [nn.Linear(6, 6)]}.get(how, [])
        self.called = (lambda x: self.hidden(x)) if how == "lambda" else None
        self.wave = nn.Parameter(torch.ones(4, dtype=torch.cfloat)) if how == "complex" else None

    def forward(self, x):
        if self.how == "list":
            x = F.linear(x, self.kept[0])
        elif self.how == "layers":
            x = self.kept[0](x)
        elif self.how == "lambda":
            x = self.called(x)
        elif self.how == "complex":
            x = torch.fft.irfft(torch.fft.rfft(x) * self.wave)
        return self.head(torch.tanh(self.hidden(x)))


@pytest.mark.parametrize("how", ["list", "layers", "lambda", "complex"])
def test_parameters_that_would_not_be_trained_as_they_are_used_are_refused(how):
    with pytest.raises(SordinoError, match=r"initial values|never be trained|real parameters"):
        fitted(Named(how))


def test_weights_of_a_loss_belong_into_the_model():
    scale = nn.Parameter(torch.ones(3))
    with pytest.raises(UnsupportedError, match="weights of a loss"):
        fitted(linear(), lambda o, t: F.cross_entropy(o * scale, t))


def ranked(outputs, targets):
    return F.cross_entropy(outputs - outputs.mean(dim=0), targets)


@pytest.mark.parametrize("loss", [ranked, nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 5.0]))])
def test_a_loss_of_whole_batches_is_said_to_be_taken_record_by_record(loss):
    with pytest.warns(UserWarning, match="neither the sum nor the mean"):
        fitted(linear(), loss, engine="vmap")


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_ordinary_losses_are_silent(reduction):
    weights = torch.tensor([1.0, 2.0, 5.0]) if reduction == "sum" else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(linear(), nn.CrossEntropyLoss(weight=weights, reduction=reduction))


def test_targets_that_are_probabilities_or_positive_are_made_up_as_such():
    x, y = blobs(40)
    squashed = nn.Sequential(linear(1), nn.Sigmoid(), nn.Flatten(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(squashed, nn.BCELoss(), ((x, (y > 0).float()),))
        fitted(squashed, lambda o, t: (o.log() - t.log()).square().mean(), ((x, y + 1.0),))


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = linear(1)

    def forward(self, x):
        return self.head(x).squeeze()


def cached():
    model = linear()
    model.seen = model(torch.zeros(1, 6))
    return model


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = linear()

    def forward(self, x):
        return self.head(F.batch_norm(x, None, None, training=True))


@pytest.mark.parametrize(
    ("model", "loss", "kind"),
    [
        (nn.Linear(5, 3), ENTROPY, torch.int64),
        (Squeezed(), nn.BCEWithLogitsLoss(), torch.float32),
        (Normalised(), ENTROPY, torch.int64),
        (linear(), ENTROPY, torch.int32),
        (linear(), "entropy", torch.int64),
        (nn.Sequential(nn.Linear(6, 6).bfloat16().requires_grad_(False), linear()), ENTROPY, torch.int64),
        (lambda x: x, ENTROPY, torch.int64),
        (cached(), ENTROPY, torch.int64),
    ],
)
def test_models_and_losses_that_do_not_fit_are_refused_in_our_words(model, loss, kind):
    x, y = blobs(40)
    with pytest.raises((InvalidInputError, InvalidTypeError)):
        fitted(model, loss, ((x, y.to(kind)),))


class Items(torch.utils.data.Dataset):
    def __init__(self, item, count=40):
        self.item, self.count = item, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.item(i)


@pytest.mark.parametrize(
    ("item", "count"),
    [
        (lambda i: (torch.zeros(6), 0, i), 40),
        (lambda i: torch.zeros(6), 40),
        (lambda i: ("text", 0), 40),
        (lambda i: (torch.zeros(6), 0), 0),
    ],
)
def test_records_that_are_no_pairs_are_refused_before_anything_is_booked(item, count, tmp_path):
    path = tmp_path / "ledger.db"
    with sordino.Ledger.open(path) as ledger:
        ledger.create("study", sordino.BudgetPolicy(9.0, 1e-2))
    trainer = Trainer(linear(), ENTROPY, delta=1e-3, steps=2, ledger=path, dataset_id="study")
    with pytest.raises(InvalidInputError):
        trainer.fit(Items(item, count))
    with sordino.Ledger.open(path) as ledger:
        assert ledger.spent("study").reservations == 0


def test_a_data_set_of_doubles_is_read_in_single_precision():
    rows = blobs(40)[0].double().numpy()
    assert Trainer(linear(), ENTROPY, delta=1e-3, steps=2).fit(Items(lambda i: (rows[i], i % 3))).steps == 2


@pytest.mark.parametrize("name", ["inputs", "rows"])
def test_a_finite_row_beyond_single_precision_looks_like_its_neighbour(name):
    x, y = blobs(120)
    rows = x.double().numpy()
    rows[3] = 1.7e308
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if name == "inputs":
            fitted(linear(), data=((rows, y),))
        else:
            NeuralClassifier(3.0, 1e-3, max_iter=2, classes=[0, 1, 2]).fit(rows, y.numpy())


@pytest.mark.parametrize(
    "settings",
    [
        {"checkpoint": "/no/such/folder/run"},
        {"projection": 3},
        {"optimizer_options": {"beta": 0.9}},
        {"public": "a fact"},
        {"precision": torch.int8},
        {"batch_size": 2.5},
        {"clip_norm": "one"},
        {"device": "nowhere"},
    ],
)
def test_settings_of_a_wrong_kind_are_refused_before_anything_is_booked(settings, tmp_path):
    path = tmp_path / "ledger.db"
    with sordino.Ledger.open(path) as ledger:
        ledger.create("study", sordino.BudgetPolicy(9.0, 1e-2))
    with pytest.raises((InvalidInputError, InvalidTypeError)):
        fitted(linear(), ledger=path, dataset_id="study", **settings)
    with sordino.Ledger.open(path) as ledger:
        assert ledger.spent("study").reservations == 0


@pytest.mark.parametrize("odd", [torch.Tensor.to_sparse, torch.Tensor.cfloat])
def test_tensors_of_another_kind_are_refused(odd):
    x, y = blobs(40)
    with pytest.raises(InvalidTypeError, match="dense real"):
        fitted(linear(), data=((odd(x), y),))


def test_validation_records_of_another_shape_are_refused_in_our_words():
    with pytest.raises(InvalidInputError, match="validation"):
        fitted(linear(), validation=blobs(20, features=5))


def test_a_batch_norm_is_replaced_where_it_stands_and_in_its_type():
    lone = replace_batch_norm(nn.BatchNorm1d(8, affine=False).double())
    assert isinstance(lone, nn.GroupNorm)
    assert lone.weight is None
    inner = replace_batch_norm(nn.Sequential(nn.BatchNorm2d(8).bfloat16(), nn.SyncBatchNorm(8)))
    assert [layer.weight.dtype for layer in inner] == [torch.bfloat16, torch.float32]


def frozen_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    model[1].running_mean.copy_(torch.linspace(-1, 1, 8))
    model[1].running_var.copy_(torch.linspace(0.5, 2, 8))
    model[1].eval().requires_grad_(False)
    return model


def test_a_batch_norm_whose_statistics_are_fixed_mixes_nothing():
    model, (x, y) = frozen_norm(), blobs(30)
    trained = [p for p in model.parameters() if p.requires_grad]
    loop = make_private(model, ENTROPY, (x, y), epsilon=math.inf, steps=2, batch_size=30, clip_norm=0.3)
    loop.quiet = True
    for _ in loop:
        got = torch.cat([p.grad.flatten() for p in trained])
        model.train()  # as trainers do: the copy that is differentiated stays as it was
    rows = []
    for i in range(30):
        fresh = frozen_norm()
        own = [p for p in fresh.parameters() if p.requires_grad]
        slopes = torch.autograd.grad(ENTROPY(fresh(x[i : i + 1]), y[i : i + 1]), own)
        row = torch.cat([slope.flatten() for slope in slopes])
        rows.append(row * min(1.0, 0.3 / float(row.norm())))
    torch.testing.assert_close(got, torch.stack(rows).mean(0), atol=1e-5, rtol=1e-3)


def test_a_batch_norm_that_counts_records_is_refused():
    bare = nn.Sequential(nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)).eval()
    for model in (frozen_norm().train(), bare):  # the second normalises by the batch even so
        with pytest.raises(UnsupportedError, match=r"mixes the records.*layer\.eval\(\)"):
            fitted(model)


class Standardised(nn.Module):
    """Divides by the deviation over the batch, which one record alone does not have."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        with torch.no_grad():
            deviation = x.std(0)
        return self.linear(x / deviation)


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("engine", ["auto", "vmap"])
def test_a_model_that_has_no_answer_for_one_record_is_refused(engine):
    """It was trained on noise, under a warning that spoke of logarithms and roots."""
    with pytest.raises(UnsupportedError, match="for several records and not for one alone"):
        fitted(Standardised(), engine=engine)


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_are_refused_by_name(kind):
    """A mask on a gradient was not applied, in silence."""
    model = linear()
    handle = getattr(next(model.parameters()), kind)(lambda gradient: None)
    for door in (fitted, lambda m: make_private(m, ENTROPY, blobs(40), epsilon=3.0, delta=1e-3, steps=2)):
        with pytest.raises(UnsupportedError, match=r"hooks, got one on '.*weight'"):
            door(model)
    handle.remove()
    left = iter(make_private(model, ENTROPY, blobs(40), epsilon=3.0, delta=1e-3, steps=2))
    next(left)
    assert fitted(model).steps  # what watches a loop is no hook of the caller's


@pytest.mark.parametrize("settings", [{"learning_rate": 0.1}, {"average": 0.9}, {"validation": blobs(20)}])
def test_a_loop_of_ones_own_refuses_settings_that_nobody_would_look_at(settings):
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        make_private(linear(), ENTROPY, blobs(40), epsilon=3.0, delta=1e-3, steps=2, **settings)


@pytest.mark.parametrize("first", [True, False])
def test_a_gradient_that_is_thrown_away_is_noticed(first):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in make_private(model, ENTROPY, blobs(40), epsilon=3.0, delta=1e-3, steps=3):
            if first:
                optimizer.zero_grad()
            optimizer.step()
            optimizer.zero_grad()
    assert sum("thrown away" in str(one.message) for one in caught) == int(first)


def test_without_autograd_around_it_a_model_keeps_its_engine():
    with torch.no_grad():
        trained = fitted(linear())
    assert "gradients by ghost" in trained.privacy.notes


def test_a_table_of_pandas_is_read_without_a_word():
    frame = pytest.importorskip("pandas").DataFrame(np.asarray(blobs(40)[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(linear(), data=((frame, blobs(40)[1]),))
