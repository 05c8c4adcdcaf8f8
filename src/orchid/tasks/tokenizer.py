"""The tokenizer of a pre-trained model: reading it from a folder, and whether the model can take what it gives."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchid.digests import file_digest

if TYPE_CHECKING:
    from orchid.tasks.shards import Shards

TOKENIZER = "tokenizer.json"


def vocabulary_digest(vocabulary: dict[str, int]) -> str:
    """Return the SHA-256 of tokens and ids: the same for a tokenizer however its file is written."""
    return hashlib.sha256(repr(sorted(vocabulary.items())).encode("utf-8", "surrogatepass")).hexdigest()


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in a folder; a folder without one, or a file that cannot be read, is an error."""
    from transformers import AutoTokenizer

    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder with a tokenizer")
    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # `tokenizers` raises nothing narrower
        path = folder / TOKENIZER
        reason = str(error).strip().split("\n")[0]
        what = "cannot be read" if path.is_file() else "does not exist, and no other tokenizer is there"
        raise ValueError(f"{path} {what} ({reason})") from None


def fit_tokenizer(tokenizer: Any, folder: Path, config: Any) -> Any:
    """Return a folder's tokenizer with the length of a model's configuration; ids the model lacks are an error."""
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= config.vocab_size:
        raise ValueError(
            f"{folder / TOKENIZER} has ids up to {largest} and the model's vocab_size is {config.vocab_size}: "
            "it is not this model's tokenizer"
        )
    tokenizer.model_max_length = config.max_position_embeddings
    return tokenizer


def check_tokenizer_of(shards: "Shards", tokenizer: Any, folder: Path) -> None:
    """Accept a folder's tokenizer only if it is the one that shards were made with: its file, or its vocabulary."""
    path, vocabulary = folder / TOKENIZER, tokenizer.get_vocab()
    if path.is_file() and file_digest(path) == shards.tokenizer:
        return
    if shards.vocabulary is not None:
        same = vocabulary_digest(vocabulary) == shards.vocabulary
    else:  # of shards written by earlier versions only the file's digest is known
        same = not path.is_file() and len(vocabulary) == shards.vocab_size
    if not same:
        raise ValueError(
            f"{path} is not the tokenizer of the shards in {shards.folder}: give the one `orchid tokenize` was given"
        )


def start_tokenizer(start: Path, length: int) -> Any:
    """Return the tokenizer beside a pre-trained model; a model that cannot take ``length`` tokens is an error."""
    from transformers import AutoConfig

    import orchid.models.bert  # noqa: F401  registers it

    config = AutoConfig.from_pretrained(start)
    if config.max_position_embeddings < length:
        raise ValueError(
            f"{start} takes {config.max_position_embeddings} tokens (max_position_embeddings), fewer than "
            f"task.length={length}: train one that is as long"
        )
    return fit_tokenizer(load_tokenizer(start), start, config)
