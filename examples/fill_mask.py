"""A masked language model from nothing: a tokenizer, Orchid-BERT, the Hugging Face Trainer, the fill-mask pipeline.

The language is small enough to be learned on a CPU in a minute: who does what where, and every animal has one sound and
one home. The model must look across the sentence to fill a gap.
"""

import random
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    pipeline,
)

from orchid.models.bert import OrchidBertConfig, OrchidBertForMaskedLM

ANIMALS = {
    "cat": ("meows", "basket"),
    "dog": ("barks", "kennel"),
    "horse": ("neighs", "stable"),
    "bee": ("hums", "hive"),
}
FILLERS = ["today", "again", "softly", "loudly", "now", "then"]
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
STEPS = 250


def sentence() -> str:
    """Return a random sentence of the language."""
    animal = random.choice(list(ANIMALS))
    sound, home = ANIMALS[animal]
    return f"the {animal} {sound} {random.choice(FILLERS)} and {random.choice(FILLERS)} sleeps in the {home}"


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words."""
    words = sorted({word for _ in range(500) for word in sentence().split()})
    vocabulary = {token: number for number, token in enumerate([*SPECIAL.values(), *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unk"]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    ends = [(SPECIAL[name], vocabulary[SPECIAL[name]]) for name in ("cls", "sep")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": token for name, token in SPECIAL.items()}
    )


def pretrain(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Train a small model on the language and save it, with its tokenizer."""
    config = OrchidBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
    )
    model = OrchidBertForMaskedLM(config)
    arguments = TrainingArguments(
        str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        save_strategy="no",
        report_to=[],
        logging_steps=50,
        disable_tqdm=True,
    )
    data = [tokenizer(sentence()) for _ in range(2000)]
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)
    Trainer(model, arguments, train_dataset=data, data_collator=collator).train()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    random.seed(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        pretrain(build_tokenizer(), Path(folder))
        fill = pipeline("fill-mask", model=folder, device="cpu")
    right = 0
    for animal, (sound, home) in ANIMALS.items():
        for text, answer in (
            (f"the {animal} [MASK] today and now sleeps in the {home}", sound),
            (f"the {animal} {sound} today and now sleeps in the [MASK]", home),
        ):
            guess = fill(text)[0]
            right += guess["token_str"] == answer
            print(f"{text:60}  {guess['token_str']} ({guess['score']:.0%})")
    print(f"{right} of 8 gaps filled right")


if __name__ == "__main__":
    main()
