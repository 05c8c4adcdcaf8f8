"""Sentence embeddings: the mean of a pre-trained Orchid-BERT's outputs over real tokens, and what is near to what.

The model is trained here in seconds, on the language of `fill_mask.py`; put the folder of your own there. With
sentence-transformers installed, `SentenceTransformer(modules=[Transformer(folder), Pooling(...)])` does the same.
"""

import random
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from fill_mask import ANIMALS, build_tokenizer, pretrain
from transformers import AutoModel, AutoTokenizer

import orchid.models.bert  # noqa: F401  the Auto classes know Orchid-BERT from here on


@torch.no_grad()
def embed(model: torch.nn.Module, tokenizer: AutoTokenizer, texts: list[str]) -> torch.Tensor:
    """Return unit vectors (texts, D); padding does not change them."""
    given = tokenizer(texts, padding=True, return_tensors="pt")
    real = given["attention_mask"][..., None]
    x = model(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).last_hidden_state
    return F.normalize((x * real).sum(dim=1) / real.sum(dim=1), dim=-1)


def centred(vectors: torch.Tensor) -> torch.Tensor:
    """Return unit vectors from their common mean: what all sentences share says nothing."""
    return F.normalize(vectors - vectors.mean(dim=0), dim=-1)


def main() -> None:
    random.seed(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        pretrain(build_tokenizer(), Path(folder))
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    animals = list(ANIMALS)
    whole = embed(model, tokenizer, [f"the {a} {s} today and now sleeps in the {h}" for a, (s, h) in ANIMALS.items()])
    parts = embed(model, tokenizer, [f"{s} then and sleeps in the {h}" for s, h in ANIMALS.values()])  # no animal named
    likeness = centred(parts) @ centred(whole).T
    nearest = likeness.argmax(dim=1)
    for (sound, home), row, found in zip(ANIMALS.values(), likeness, nearest, strict=True):
        print(f"{sound:7} then and sleeps in the {home:7} is nearest to the {animals[found]} ({row[found]:.2f})")
    print(f"{int((nearest == torch.arange(len(animals))).sum())} of {len(animals)} found")


if __name__ == "__main__":
    main()
