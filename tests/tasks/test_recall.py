import itertools

import pytest
import torch

from orchid.models.sequence import SequenceConfig
from orchid.tasks.recall import IGNORE, MASK, SPECIAL, Recall, RecallConfig
from orchid.tasks.seeds import generator_seed


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


class TestStreams:
    """Train, test and validation examples never meet, and neither do those of two seeds."""

    @pytest.mark.parametrize(("device", "seeds", "batches"), [("cpu", 1 << 12, 1 << 18), ("cuda", 1 << 28, 1 << 32)])
    def test_ranges_are_disjoint(self, device: str, seeds: int, batches: int) -> None:
        splits = ("train", "test", "valid", "set")
        ranges = [
            (generator_seed(split, seed, 0, device), generator_seed(split, seed, batches - 1, device))
            for split in splits
            for seed in (0, 1, 7, seeds - 1)
        ]
        assert all(last - first == batches - 1 for first, last in ranges)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(sorted(ranges)))
        assert max(last for _, last in ranges) < (1 << 32 if device == "cpu" else 1 << 63)
        beyond = [
            generator_seed(split, seed, index, device)
            for split in splits
            for seed, index in ((seeds, 0), (seeds, 1), (12345678901, 7), (0, batches), (1, batches))
        ]
        assert len(set(beyond)) == len(beyond) and max(beyond) < (1 << 32 if device == "cpu" else 1 << 63)
        with pytest.raises(ValueError, match="seed=-1 must be an integer of at least 0"):
            generator_seed("train", -1, 0, device)

    def test_generators_with_these_seeds_differ(self) -> None:
        """The CPU's generator reads 32 bits of its seed: every field must be among them."""
        batches = [("train", 0, 0), ("train", 1, 0), ("train", 0, 1), ("test", 0, 0), ("valid", 0, 0), ("set", 0, 0)]
        recall = Recall(20, 64)
        drawn = [recall._sequences(recall._generator(*batch, "cpu"), 4, "cpu") for batch in batches]
        for (name, a), (other, b) in itertools.combinations(zip(batches, drawn, strict=True), 2):
            assert (a == b).float().mean() < 0.3, f"{name} and {other} share examples"

    def test_no_example_is_in_two_splits(self) -> None:
        recall = Recall(20, 64, "answer")
        splits = {
            split: {tuple(row.tolist()) for index in range(20) for row in recall.batch(split, 0, index, 50)[0]}
            for split in ("train", "test", "valid")
        }
        assert all(len(rows) == 1000 for rows in splits.values())
        assert len(set().union(*splits.values())) == 3000


class TestFiniteSet:
    def test_an_epoch_shows_every_example_once(self) -> None:
        """In a new order every time, also where an epoch ends within a batch."""
        recall = Recall(20, 16, "answer")
        examples = recall.examples(0, 30)
        rows = torch.cat([recall.set_batch(examples, 0, index, 8)[0] for index in range(15)])  # four epochs
        shown = [tuple(row.tolist()) for row in rows]
        epochs = [shown[start : start + 30] for start in range(0, 120, 30)]
        expected = sorted((*row.tolist()[:-1], MASK) for row in examples)
        assert all(sorted(epoch) == expected for epoch in epochs)
        assert epochs[0] != epochs[1]

    def test_hidden_values_are_drawn_anew(self) -> None:
        recall = Recall(20, 64)
        examples = recall.examples(0, 8)
        first, second = (recall.set_batch(examples, 0, index, 8) for index in (0, 1))
        for tokens, targets in (first, second):
            whole = torch.where(targets == IGNORE, tokens, targets)
            assert sorted(whole.tolist()) == sorted(examples.tolist())
        assert sorted(first[0].tolist()) != sorted(second[0].tolist())

    def test_task_repeats_its_set(self) -> None:
        task = RecallConfig(vocab_size=12, length=16, signal="answer", train_size=20).build(SequenceConfig(), 3)
        seen = {tuple(row.tolist()) for index in range(30) for row in task.train_batch(index, 8, "cpu")[0]}
        assert len(seen) == 20


def test_validation_has_its_own_examples_and_names() -> None:
    class Guess(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(tokens[:, 1:2].expand_as(tokens), 12).float()

    test, valid = (
        RecallConfig(vocab_size=12, length=16, test_size=300, evaluate_on=split).build(SequenceConfig(), 0)
        for split in ("test", "valid")
    )
    a, b = test.evaluate(Guess(), "cpu"), valid.evaluate(Guess(), "cpu")
    assert set(a) == {"test/accuracy", "test/loss", "test/best_guess"}
    assert set(b) == {"valid/accuracy", "valid/loss", "valid/best_guess"}
    assert a["test/best_guess"] != b["valid/best_guess"]
    with pytest.raises(ValueError, match="evaluate_on='train' is not one of"):
        RecallConfig(vocab_size=12, length=16, evaluate_on="train").build(SequenceConfig(), 0)


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
