"""The tokenizer of a pre-trained model: reading it from a folder, and whether the model can take what it gives."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchid.digests import file_digest

if TYPE_CHECKING:
    from orchid.tasks.mlm import MaskedLMTask

TOKENIZER = "tokenizer.json"
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


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
    """Return a folder's tokenizer as Orchid-BERT needs it; ids that the model of a configuration lacks are an error.

    It knows the model's length, its special tokens (a tokenizer.json by itself does not say which they are), and that
    the two sentences of a pair are told apart.
    """
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= config.vocab_size:
        raise ValueError(
            f"{folder / TOKENIZER} has ids up to {largest} and the model's vocab_size is {config.vocab_size}: "
            "it is not this model's tokenizer"
        )
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = INPUTS  # now, and when it is saved
    known = tokenizer.get_vocab()
    unnamed = {f"{name}_token": token for name, token in SPECIAL.items() if token in known}
    tokenizer.add_special_tokens({key: token for key, token in unnamed.items() if getattr(tokenizer, key) is None})
    return tokenizer


def check_tokenizer_of(task: "MaskedLMTask", tokenizer: Any, folder: Path) -> None:
    """Accept a folder's tokenizer only if a task's shards were made with it: by its file, or its vocabulary."""
    path, vocabulary, config = folder / TOKENIZER, tokenizer.get_vocab(), task.config
    if config.vocabulary:  # known without the shards, which may be gone
        same, where = vocabulary_digest(vocabulary) == config.vocabulary, config.train
    else:
        shards, _ = task.data()
        where = str(shards.folder)
        if shards.vocabulary is not None:
            same = vocabulary_digest(vocabulary) == shards.vocabulary
        else:  # of shards written by earlier versions only the file's digest is known
            same = file_digest(path) == shards.tokenizer if path.is_file() else len(vocabulary) == shards.vocab_size
    if not same:
        raise ValueError(
            f"{path} is not the tokenizer of the shards in {where}: give the one `orchid tokenize` was given"
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
