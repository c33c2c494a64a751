"""The check of engines follows the precision in force, and a fall back to vmap is said aloud."""

import pytest
import torch
from torch import nn

from sordino.errors import InvalidInputError, SlowEngineWarning, UnsupportedError
from sordino.kernel.clip import tensors as clip_tensors
from sordino.nn import Trainer, engine_choice, engines
from sordino.nn import operations as graph
from sordino.nn.engine_choice import engine_notes, make_engine, sized_engine
from sordino.nn.network import INPUTS, Network, forward_inputs

LOSS = nn.CrossEntropyLoss()
TF32, BFLOAT16 = INPUTS["tf32"], INPUTS["bf16"]
X, Y = torch.zeros(5, 6, 8), torch.zeros(5, dtype=torch.long)


class Encoder(nn.Module):
    """Attention made of plain layers."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        for q, k, v in (self.parts[:3], self.parts[3:]):
            scores = q(x) @ k(x).transpose(1, 2)
            x = self.norm(x + torch.softmax(4 * scores, dim=2) @ v(x))
        return self.head(x.mean(dim=1))


def coarse(values, bits):
    """The values as a coarse product reads them; gradients pass."""
    scale = 2.0 ** (torch.frexp(values.detach()).exponent - 1)
    return values + (torch.round(values.detach() / scale * 2.0**bits) / 2.0**bits * scale - values.detach())


@pytest.fixture
def coarse_batches(monkeypatch):
    """Linear layers keep ten bits, as with TF32, except for one record alone (other kernels on a GPU)."""
    real = nn.functional.linear

    def linear(x, weight, bias=None):
        return real(coarse(x, 10), coarse(weight, 10), bias) if len(x) > 1 else real(x, weight, bias)

    monkeypatch.setattr(nn.functional, "linear", linear)
    torch.manual_seed(0)


def in_force(monkeypatch, inputs):
    monkeypatch.setattr(engine_choice, "forward_inputs", lambda device: inputs)


def test_an_encoder_keeps_ghost_norms_under_the_precision_that_is_set(coarse_batches, monkeypatch):
    in_force(monkeypatch, TF32)
    assert make_engine(Network(Encoder(), LOSS), X, Y).method == "ghost"


def test_the_twin_that_knows_only_float32_falls_back_to_vmap(coarse_batches, monkeypatch):
    in_force(monkeypatch, 0.0)
    with pytest.warns(SlowEngineWarning, match="parameter 'parts"):
        assert make_engine(Network(Encoder(), LOSS), X, Y).method == "vmap"


class Leaky(nn.Module):
    """Moves each record by a little of the others."""

    def __init__(self, share):
        super().__init__()
        self.head, self.share = nn.Linear(48, 3), share

    def forward(self, x):
        x = x.flatten(1)
        return self.head(x + self.share * x.sum(dim=0))


@pytest.mark.parametrize("inputs", [0.0, TF32, BFLOAT16])
def test_mixing_is_found_at_every_precision(monkeypatch, inputs):
    in_force(monkeypatch, inputs)
    with pytest.raises(UnsupportedError, match="mixes records") as caught:
        make_engine(Network(Leaky(0.02), LOSS), X, Y, "ghost")
    assert ("set_float32_matmul_precision" in str(caught.value)) is (inputs > 0)


def test_mixing_is_found_in_a_bfloat16_forward_pass():
    with pytest.raises(UnsupportedError, match="mixes records"):
        make_engine(Network(Leaky(0.02), LOSS, torch.bfloat16), X, Y, "ghost")


class Scaled(nn.Module):
    """Holds a parameter that enters by an operation without a rule: distances to centres."""

    def __init__(self, head=True):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(3, 48))
        self.head = nn.Linear(3, 3) if head else nn.Identity()

    def forward(self, x):
        return self.head(torch.cdist(x, self.centres))


class Stacked(nn.Module):
    def __init__(self, head=True):
        super().__init__()
        self.part = Scaled(head)

    def forward(self, x):
        return self.part(x)


def test_a_fall_back_to_vmap_names_the_parameter_and_stands_in_the_report():
    trainer = Trainer(Stacked(False), LOSS, epsilon=3.0, delta=1e-5, steps=2, batch_size=4)
    with pytest.warns(SlowEngineWarning, match=r"'part\.centres' by .*[Cc]dist.*engine='vmap' if"):
        trained = trainer.fit(torch.randn(40, 48), torch.zeros(40, dtype=torch.long))
    assert any("not by ghost norms" in note and "'part.centres'" in note for note in trained.privacy.notes)


def test_one_parameter_without_a_rule_is_differentiated_alone_and_named():
    network = Network(Stacked(), LOSS)
    with pytest.warns(SlowEngineWarning, match=r"'part\.centres' by .*[Cc]dist.*only theirs"):
        engine = make_engine(network, torch.zeros(5, 48), Y)
    assert engine.method == "ghost"
    assert list(engine.unknown()) == ["part.centres"]
    assert "'part.centres'" in engine_notes(engine)[0]


class Dropping(nn.Module):
    """Places of all records in one axis, with dropout between."""

    def __init__(self):
        super().__init__()
        self.inner, self.drop, self.head = nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3)

    def forward(self, x):
        h = self.drop(torch.tanh(self.inner(x.flatten(0, 1)))).unflatten(0, (len(x), -1))
        return self.head(h.mean(dim=1))


def test_records_taken_apart_wrongly_in_the_mode_of_training_are_noticed(monkeypatch):
    """The twin is right without dropout, and reads the places of other records with it."""
    assert make_engine(Network(Dropping(), LOSS), X, Y, "ghost").method == "ghost"
    real = engines.find_layouts

    def twin(graph, losses):
        found = real(graph, losses)
        drops = any("Dropout" in name or name == "MulBackward0" for name in graph.signature)
        return [turned(one) if drops and one is not None else one for one in found]

    def turned(layout):
        return graph.Layout(0, "minor") if layout.part == "major" else layout

    monkeypatch.setattr(engines, "find_layouts", twin)
    with pytest.raises(UnsupportedError, match="'inner"):
        make_engine(Network(Dropping(), LOSS), X, Y, "ghost")


def test_an_engine_that_was_asked_for_is_no_fall_back():
    engine = make_engine(Network(Stacked(), LOSS), torch.zeros(5, 48), Y, "vmap")
    assert engine_notes(engine) == ("gradients by vmap",)


def test_the_precision_of_convolutions_is_read_too():
    before = torch.backends.mkldnn.conv.fp32_precision
    try:
        torch.backends.mkldnn.conv.fp32_precision = "bf16"
        assert forward_inputs(torch.device("cpu")) == BFLOAT16
    finally:
        torch.backends.mkldnn.conv.fp32_precision = before
    assert forward_inputs(torch.device("cpu")) == 0.0


class Cut(nn.Module):
    """Cuts a batch to its longest record, and averages over the places that are left."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(5000, 4), nn.Linear(4, 3)

    def forward(self, x):
        longest = int((x != 0).sum(dim=1).max())
        return self.head(self.words(x[:, :longest]).mean(dim=1))


class Shrunk(nn.Module):
    """Shrinks a batch whose largest number is beyond a bound."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(48, 3)

    def forward(self, x):
        return self.head(x.flatten(1) / x.abs().max().clamp(min=100.0))


class Bridled(Shrunk):
    """Bounds the gradient of a batch: few records do not reach the bound."""

    def forward(self, x):
        out = self.head(x.flatten(1))
        if out.requires_grad:
            out.register_hook(lambda slope: slope * (4.0 / slope.norm().clamp(min=1e-9)).clamp(max=1.0))
        return out


@pytest.mark.parametrize("model", [Cut, Shrunk, Bridled])
def test_mixing_is_found_that_shows_only_among_uneven_or_many_records(model):
    torch.manual_seed(0)
    x = torch.zeros(5, 12, dtype=torch.long) if model is Cut else X
    with pytest.raises(UnsupportedError, match="mixes records"):
        make_engine(Network(model(), LOSS), x, Y, "ghost", chunk=128)


@pytest.mark.parametrize("model", [Cut, Shrunk])
def test_mixing_among_uneven_records_is_found_in_a_bfloat16_forward_pass(model):
    torch.manual_seed(0)
    x = torch.zeros(5, 12, dtype=torch.long) if model is Cut else X
    with pytest.raises(UnsupportedError, match="mixes records"):
        make_engine(Network(model(), LOSS, torch.bfloat16), x, Y, "ghost")


def test_a_model_that_overflows_at_large_numbers_keeps_ghost_norms():
    class Steep(nn.Sequential):
        def forward(self, x):
            return super().forward(torch.exp(x.flatten(1)))

    model = Steep(nn.Linear(48, 3))
    assert make_engine(Network(model, nn.MSELoss()), X, torch.zeros(5, 3), "ghost").method == "ghost"


def test_the_checks_take_few_passes_however_large_the_batch(monkeypatch):
    passes = {"clipped": 0, "per_record": 0}

    def counted(name):
        real = getattr(engines.GhostEngine, name)

        def call(self, *args, **kwargs):
            passes[name] += 1
            return real(self, *args, **kwargs)

        monkeypatch.setattr(engines.GhostEngine, name, call)

    for name in passes:
        counted(name)
    make_engine(Network(Encoder(), LOSS), X, Y, "ghost", chunk=300)
    assert passes == {"clipped": 6, "per_record": 8}


@pytest.mark.parametrize("first", [0, 20, 120])
def test_gradients_that_many_records_bridle_are_found_wherever_they_stand(first):
    """Only the gradients of some records are wrong, their outputs are right."""

    class Some(Shrunk):
        def forward(self, x):
            out = self.head(x.flatten(1))
            if out.requires_grad and len(x) > 8:
                marked = torch.arange(len(x)) // 40 == first // 40
                out.register_hook(lambda slope: torch.where(marked[:, None], 0.5 * slope, slope))
            return out

    with pytest.raises(UnsupportedError, match="gradients of 128"):
        make_engine(Network(Some(), LOSS), X, Y, "ghost", chunk=128)


class Next(nn.Module):
    """The table of many words is also the last product."""

    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(500, 32), nn.LayerNorm(32)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, x):
        return self.norm(self.words(x).cumsum(dim=1)) @ self.words.weight.T


def next_word(outputs, words):
    return nn.functional.cross_entropy(outputs[:, :-1].flatten(0, 1), words[:, 1:].flatten())


@pytest.mark.parametrize(("share", "held"), [(1.0, True), (0.98, True), (1.05, False), (0.6, False)])
def test_a_clip_that_bounds_make_a_little_shorter_is_no_reason_to_fall_back(monkeypatch, share, held):
    """The bound of a tied table of many words costs some of the clip; a factor too large is refused."""
    real, x = clip_tensors.Contributions.factors, torch.zeros(2, 24, dtype=torch.long)

    def twin(self, clip, present=None):
        factors = real(self, clip, present)
        return torch.where(factors < 1, share * factors, factors)

    monkeypatch.setattr(clip_tensors.Contributions, "factors", twin)
    torch.manual_seed(0)
    network = Network(Next(), next_word)
    if held:
        assert make_engine(network, x, x, "ghost", chunk=8).method == "ghost"
    else:
        with pytest.raises(UnsupportedError):
            make_engine(network, x, x, "ghost", chunk=8)


class Renamed:
    """A node of autograd whose private names are gone, as another version of torch might have it."""

    def __init__(self, node):
        self.node = node

    def __getattr__(self, name):
        if name.startswith(("_saved", "_input_metadata")):
            raise AttributeError(f"no {name}", name=name, obj=self)
        return getattr(self.node, name)


def test_a_torch_that_keeps_its_graph_otherwise_is_told_in_words_and_answers_alike(monkeypatch):
    network = Network(nn.Linear(8, 3), LOSS)
    x, y = torch.randn(5, 8), torch.tensor([0, 1, 2, 1, 0])
    usual, vector = make_engine(network, x, y), torch.zeros(27)
    expected = usual.per_record(vector, x, y)
    real = graph.read_graph

    def renamed(*arguments):
        found = real(*arguments)
        found.nodes[:] = [Renamed(node) for node in found.nodes]
        return found

    for module in (graph, engines):
        monkeypatch.setattr(module, "read_graph", renamed, raising=False)
    with pytest.warns(SlowEngineWarning, match=r"torch \S+ keeps it otherwise \('_"):
        other = make_engine(network, x, y)
    assert (usual.method, other.method) == ("ghost", "vmap")
    assert torch.allclose(expected, other.per_record(vector, x, y), atol=1e-6)
    with pytest.raises(UnsupportedError, match="Use engine='vmap'"):
        make_engine(network, x, y, "ghost")


@pytest.mark.parametrize("method", ["auto", "ghost"])
def test_records_that_do_not_fit_are_refused_with_the_remedy(monkeypatch, method):
    def short(*rest):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(engine_choice, "_check_many", short)
    with pytest.raises(InvalidInputError, match="chunk_size"):
        make_engine(Network(Encoder(), LOSS), X, Y, method)


def test_a_block_is_as_large_as_memory_bears_not_as_parameters_allow(monkeypatch):
    wide = Network(nn.Sequential(nn.Linear(6, 3000), nn.Tanh(), nn.Linear(3000, 3)), LOSS)
    x, y = torch.zeros(1, 6), torch.zeros(1, dtype=torch.long)
    assert sized_engine(wide, x, y, "auto", 500)[1] == 500
    monkeypatch.setattr(engine_choice, "_ON_CPU", 1 << 22)  # some 20 kilobytes are kept for a record
    assert 20 <= sized_engine(wide, x, y, "auto", 500)[1] <= 200
    assert sized_engine(wide, x, y, "vmap", 500)[1] <= 30  # one gradient of 84 kilobytes for each
    assert sized_engine(wide, x, y, "ghost", 500, 77)[1] == 77


def test_a_block_without_memory_is_halved(monkeypatch):
    real, tried = engine_choice._check_many, []

    def short(engine, vector, x, y):
        tried.append(len(x))
        if len(x) > 100:
            raise torch.OutOfMemoryError("no room")
        real(engine, vector, x, y)

    monkeypatch.setattr(engine_choice, "_check_many", short)
    assert sized_engine(Network(Encoder(), LOSS), X, Y, "auto", 300)[1] == 75
    assert tried == [7, 300, 150, 75]


def test_a_block_takes_little_more_memory_than_a_plain_step(monkeypatch):
    """Seven bytes a record beside one: of 600 records, 3.5 times 600 / 7 at once."""
    network = Network(nn.Linear(3, 2), nn.CrossEntropyLoss())
    x, y = torch.randn(1, 3), torch.zeros(1, dtype=torch.int64)
    monkeypatch.setattr(engine_choice, "_bytes", lambda engine, x, y: 7.0 * len(x) + 1000)
    monkeypatch.setattr(engine_choice, "_plain_bytes", lambda network, x, y: 1.0 * len(x) + 7)
    assert engine_choice._modest_chunk(engine_choice.GhostEngine(network), x, y, 600) == 300

    def full(network, x, y):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(engine_choice, "_plain_bytes", full)
    assert engine_choice._modest_chunk(engine_choice.GhostEngine(network), x, y, 600) == 64
