import itertools

import pytest
import torch

from orchid.models.sequence import SequenceConfig
from orchid.tasks.recall import IGNORE, MASK, SPECIAL, Recall, RecallConfig


@pytest.fixture
def recall() -> Recall:
    return Recall(vocab_size=20, length=64)


def lookup(recall: Recall, row: torch.Tensor) -> dict[int, int]:
    """The dictionary a sequence shows."""
    return {int(k): int(v) for k, v in row.view(-1, 2) if v != MASK}


def test_vocabulary_counts_two_special_symbols(recall: Recall) -> None:
    assert (recall.keys, recall.values) == (9, 9)
    tokens, _ = recall.batch("test", 0, 0, 200)
    keys, values = tokens[:, 0::2], tokens[:, 1:-1:2]
    assert keys.min() == SPECIAL and keys.max() == SPECIAL + 8
    assert values.min() == SPECIAL + 9 and values.max() == 19


def test_every_test_example_asks_one_answerable_question(recall: Recall) -> None:
    tokens, targets = recall.batch("test", 0, 0, 200)
    assert (targets != IGNORE).sum(dim=1).eq(1).all()
    assert tokens[:, -1].eq(MASK).all()
    for row, target in zip(tokens, targets, strict=True):
        assert lookup(recall, row)[int(row[-2])] == int(target[-1])


def test_masked_signal_hides_values_and_asks_for_them(recall: Recall) -> None:
    tokens, targets = recall.batch("train", 0, 0, 500)
    asked = targets != IGNORE
    assert torch.equal(asked, tokens == MASK)
    assert not asked[:, 0::2].any()
    share = asked[:, 1:-1:2].float().mean().item()
    assert share == pytest.approx(0.3, abs=0.01)
    for row, target in zip(tokens[:20], targets, strict=False):
        shown = lookup(recall, row)
        for pair in range(32):
            key, wanted = int(row[2 * pair]), int(target[2 * pair + 1])
            if wanted != IGNORE and key in shown:
                assert shown[key] == wanted


def test_answer_signal_asks_for_the_query_alone() -> None:
    _, targets = Recall(20, 64, "answer").batch("train", 0, 0, 50)
    assert (targets != IGNORE).sum() == 50


def test_batches_are_functions_of_their_index(recall: Recall) -> None:
    first, again, other = (recall.batch("train", 3, index, 8)[0] for index in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_splits_and_seeds_never_share_a_generator_seed() -> None:
    """Train and test ranges are disjoint for every seed, whatever the number of batches below 2**32."""
    starts = sorted(Recall.stream(split, seed) for split in ("train", "test") for seed in (0, 1, 7, 2**28 - 1))
    assert all(b - a >= 2**32 for a, b in itertools.pairwise(starts))
    assert Recall.stream("train", 2**28 - 1) + 2**32 <= Recall.stream("test", 0)
    train, test = Recall(20, 64, "answer"), Recall(20, 64)
    rows = {tuple(row.tolist()) for index in range(50) for row in train.batch("train", 0, index, 20)[0]}
    assert not rows & {tuple(row.tolist()) for row in test.batch("test", 0, 0, 1000)[0]}


def test_best_guess_is_the_most_frequent_value(recall: Recall) -> None:
    tokens, _ = recall.batch("test", 0, 0, 20)
    for row, guess in zip(tokens, recall.best_guess(tokens), strict=True):
        values = row[1:-1:2]
        assert values.eq(guess).sum() == max(values.eq(v).sum() for v in values.unique())


def test_a_model_that_looks_up_scores_one() -> None:
    task = RecallConfig(vocab_size=12, length=24, test_size=130).build(SequenceConfig(d_model=8), 0)

    class Oracle(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*tokens.shape, 12)
            for i, row in enumerate(tokens):
                logits[i, -1, lookup(task.recall, row)[int(row[-2])]] = 1.0
            return logits

    metrics = task.evaluate(Oracle(), "cpu")
    assert metrics["test/accuracy"] == 1.0
    assert 0.1 < metrics["test/best_guess"] < 0.6


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="length=7 must be even"):
        Recall(20, 7)
    with pytest.raises(ValueError, match="vocab_size=3"):
        Recall(3, 8)
    with pytest.raises(ValueError, match="signal='next' is not one of"):
        Recall(20, 8, "next")
    with pytest.raises(ValueError, match=r"mask_share=1\.5"):
        Recall(20, 8, mask_share=1.5)
    with pytest.raises(ValueError, match="split='dev' is not one of"):
        Recall(20, 8).batch("dev", 0, 0, 1)
    with pytest.raises(ValueError, match="seed=-1"):
        Recall(20, 8).batch("train", -1, 0, 1)
