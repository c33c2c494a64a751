"""The stream on the device is ChaCha20, and its normals are normal."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from sordino.errors import PlanError
from sordino.execute import draws as chacha
from sordino.execute.draws import chacha20_words, normals
from sordino.execute.torch import NoisePool, TensorNoise
from sordino.kernel import NoiseSource

KEY = torch.from_numpy(np.arange(32, dtype=np.uint8).view(np.int32).copy())
# RFC 8439, section 2.3.2: counter 1, this nonce
BLOCK = [
    "e4e7f110",
    "15593bd1",
    "1fdd0f50",
    "c47120a3",
    "c7f4d1c7",
    "0368c033",
    "9aaa2204",
    "4e6cd4c3",
    "466482d2",
    "09aa9f07",
    "05d7c214",
    "a2028bd9",
    "d19c12b5",
    "b94e16de",
    "e883d0cb",
    "4e3c50a2",
]


def _key(seed):
    words = np.random.default_rng(seed).integers(0, 2**32, 8, dtype=np.uint32)
    return torch.from_numpy(words.view(np.int32).copy())


def test_a_block_is_that_of_the_standard():
    words = chacha20_words(KEY, 2, (0x09000000, 0x4A000000, 0x00000000))
    second = words.numpy().view(np.uint32)[16:]
    assert [f"{word:08x}" for word in second] == BLOCK


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")
def test_the_kernel_of_a_gpu_makes_the_same_words():
    device = torch.device("cuda", torch.cuda.current_device())
    made, key = chacha._kernel(device), _key(4).cuda()
    assert made is not None
    for blocks in (1, 127, 129, 5000):
        assert torch.equal(made.words(key, blocks), chacha20_words(key, blocks))
    for count in (1, 2, 255, 257, 100_001):
        drawn = made.normals(key, count)
        assert drawn.shape == (count,)
        assert torch.allclose(drawn, chacha._normals(key, count), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("twist", "scale"), [(0, 1.0), (1, 1.0), (0, 0.999)])
def test_a_kernel_that_makes_other_words_or_numbers_is_not_used(monkeypatch, twist, scale):
    made = SimpleNamespace(
        words=lambda key, blocks: chacha20_words(key, blocks) ^ twist,
        normals=lambda key, count: scale * chacha._normals(key, count),
    )
    monkeypatch.setattr(chacha.importlib, "import_module", lambda name: made)
    assert (chacha._kernel.__wrapped__(torch.device("cpu")) is None) is (twist == 1 or scale != 1.0)


@pytest.mark.statistical
def test_normals_are_normal_and_a_wrong_scale_is_rejected():
    drawn = normals(_key(0), 200_001).double().numpy()
    assert len(drawn) == 200_001
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    for scale in (2 / 3, 3 / 2):
        assert stats.kstest(scale * drawn, "norm").pvalue < 1e-4


@pytest.mark.statistical
def test_the_two_halves_of_a_pair_are_uncorrelated():
    drawn = normals(_key(1), 100_000).double().numpy()
    half = len(drawn) // 2
    for f in (lambda v: v, np.abs):
        assert stats.pearsonr(f(drawn[:half]), f(drawn[half:])).pvalue > 1e-4


def test_another_key_gives_another_stream():
    assert not torch.equal(normals(_key(2), 50), normals(_key(3), 50))
    assert torch.equal(normals(_key(2), 50), normals(_key(2), 50))


@pytest.mark.parametrize("on_device", [False, True])
def test_each_answer_gets_fresh_noise_of_its_own_shape(on_device):
    cpu = torch.device("cpu")
    pool = NoisePool(cpu) if on_device else None
    noise = TensorNoise(NoiseSource.seeded_not_private(5), cpu, pool)
    first, second = noise.normal((4, 3)), noise.normal((4, 3))
    assert first.shape == (4, 3)
    assert first.dtype == torch.float32
    assert not torch.equal(first, second)
    assert 0.2 < float(noise.normal((1000,)).std()) < 1.3


def test_a_pool_hands_out_each_number_once_and_none_of_another_source():
    pool = NoisePool(torch.device("cpu"))
    pool._least = 100  # as on a GPU: several answers share a block
    first = NoiseSource.seeded_not_private(1)
    drawn = torch.cat([pool.take(first, count) for count in (30, 60, 30, 250)])
    assert len(drawn) == 370
    assert len(torch.unique(drawn)) == 370
    pool.take(first, 10)
    second = NoiseSource.seeded_not_private(2)
    fresh = NoisePool(torch.device("cpu"))
    fresh._least = 100
    assert torch.equal(pool.take(second, 20), fresh.take(NoiseSource.seeded_not_private(2), 20))


def test_a_pool_cannot_be_copied():
    with pytest.raises(PlanError, match="copied"):
        copy.deepcopy(NoisePool(torch.device("cpu")))
