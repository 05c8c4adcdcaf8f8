"""GLUE without a model: counted words and their overlap, in a linear classifier or regression.

What a fine-tuned model's score is to be compared with: a score below it says nothing of the model's language.
"""

from typing import Any

import numpy as np

from orchid.tasks.glue_data import Example, GlueSpec

RECIPE = "bert/glue-words"  # as results name it


class Words:
    """Words and pairs of neighbours of either sentence, weighted (tf-idf); of a pair also the words they share."""

    def __init__(self) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        # single letters are words too
        settings = {"ngram_range": (1, 2), "min_df": 2, "sublinear_tf": True, "token_pattern": r"(?u)\b\w+\b"}
        self.counters: list[Any] = [TfidfVectorizer(**settings) for _ in range(3)]

    def fitted(self, examples: list[Example]) -> Any:
        """Choose the words by these examples; return their features, sparse (N, features)."""
        counts = []
        for place, (counter, texts) in enumerate(self._parts(examples)):
            try:
                counts.append(counter.fit_transform(texts))
            except ValueError:  # no word stands in two of them: nothing to count
                self.counters[place] = None
        return self._joined(counts, examples)

    def of(self, examples: list[Example]) -> Any:
        """Return the features of other examples."""
        counts = [counter.transform(texts) for counter, texts in self._parts(examples) if counter is not None]
        return self._joined(counts, examples)

    def _parts(self, examples: list[Example]) -> list[tuple[Any, list[str]]]:
        columns = [[example.first for example in examples]]
        if examples[0].second is not None:
            columns.append([str(example.second) for example in examples])
            columns.append([" ".join(sorted(_words(e.first) & _words(str(e.second)))) for e in examples])
        return list(zip(self.counters, columns, strict=False))

    def _joined(self, counts: list[Any], examples: list[Example]) -> Any:
        from scipy.sparse import csr_matrix, hstack

        return hstack([*counts, csr_matrix(np.array([overlap(example) for example in examples]))]).tocsr()


def _words(text: str) -> set[str]:
    return set(text.lower().split())


def overlap(example: Example) -> list[float]:
    """Return the shared words of a pair as parts of all words, of the first's and of the second's; 0 of a sentence."""
    if example.second is None:
        return [0.0]
    first, second = _words(example.first), _words(example.second)
    shared = len(first & second)
    return [shared / max(1, size) for size in (len(first | second), len(first), len(second))]


def predictions(spec: GlueSpec, train: list[Example], dev: list[list[Example]]) -> list[np.ndarray]:
    """Return the classes or scores of every development set."""
    from sklearn.linear_model import LogisticRegression, Ridge

    words, labels = Words(), np.array([example.label for example in train])
    model = LogisticRegression(max_iter=2000) if spec.labels else Ridge()
    model.fit(words.fitted(train), labels)
    return [model.predict(words.of(examples)) for examples in dev]
