"""What the paper reports on associative recall: tables icl and icl2 and figure synthetics1, in percent."""

LENGTHS = (128, 512, 2048, 8192, 32768, 131072)

# (model, vocabulary): accuracies at LENGTHS; None where the paper has no value. "attention" is its Transformer.
ACCURACY: dict[tuple[str, int], tuple[float | None, ...]] = {
    ("orchid", 20): (100, 100, 100, 100, 100, 100),
    ("orchid", 30): (99.4, 99.8, None, None, 100, None),
    ("orchid", 40): (99.2, 100, None, None, 100, None),
    ("attention", 20): (100, 100, 100, 100, None, None),
    ("attention", 30): (100, None, None, None, None, None),
    ("attention", 40): (100, None, None, None, None, None),
    ("ckconv", 20): (91, 98, 99.4, 99.8, 100, None),
    ("ckconv", 30): (25.7, 85, 93.1, 91.2, 95.2, None),
    ("ckconv", 40): (20.4, 38.6, 52, 51.2, 49.7, None),
    ("h3", 20): (71.5, 84.4, 92.8, 93.6, 91.4, None),
    ("h3", 30): (13.2, 23.2, 28.1, 16.7, 8.4, None),
    ("h3", 40): (10.2, 12.2, 8.6, 4.1, 4, None),
    ("hyena", 20): (93, 99, 99.6, 100, 100, None),
    ("hyena", 30): (38.8, 98, 98.8, 99.2, 99.6, None),
    ("hyena", 40): (12.4, 66.5, 99.1, 100, 100, None),
    ("mamba", 20): (100, None, None, None, None, None),
    ("mamba", 30): (100, None, None, None, None, None),
    ("mamba", 40): (35.8, None, None, None, None, None),
    ("monarch", 20): (None, 98.7, 99.4, 99.4, 99.4, 99.4),
}


def paper_accuracy(model: str, vocab_size: int, length: int) -> dict[str, float]:
    """Return the paper's test accuracy as a fraction under its metric's name, or nothing."""
    row = dict(zip(LENGTHS, ACCURACY.get((model, vocab_size), ()), strict=False))
    value = row.get(length)
    return {} if value is None else {"test/accuracy": value / 100}
