"""Fine-tuning with the Hugging Face Trainer: a classifier from a pre-trained Orchid-BERT, and its pipeline.

The start is trained here in seconds, on the language of `fill_mask.py`; put the folder of your own there (`orchid
export` writes one). The task: does the animal make its own sound?
"""

import random
import tempfile
from pathlib import Path

import torch
from fill_mask import ANIMALS, FILLERS, build_tokenizer, pretrain
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments, pipeline

import orchid.models.bert  # noqa: F401  the Auto classes know Orchid-BERT from here on

STEPS = 120


def example(animal: str, sound: str) -> dict[str, object]:
    """Return a sentence and whether it is true."""
    text = (
        f"the {animal} {sound} {random.choice(FILLERS)} and {random.choice(FILLERS)} sleeps in the {ANIMALS[animal][1]}"
    )
    return {"text": text, "label": int(ANIMALS[animal][0] == sound)}


def main() -> None:
    random.seed(0)
    torch.manual_seed(0)
    sounds = [sound for sound, _ in ANIMALS.values()]
    pairs = [(animal, sound) for animal in ANIMALS for sound in sounds]
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        pretrain(build_tokenizer(), start)
        tokenizer = AutoTokenizer.from_pretrained(start)
        names = {0: "wrong", 1: "right"}
        model = AutoModelForSequenceClassification.from_pretrained(start, id2label=names, num_labels=2)
        own = [(animal, sound) for animal, (sound, _) in ANIMALS.items()]
        balanced = pairs + 2 * own  # as many right ones as wrong ones
        rows = [example(*random.choice(balanced)) for _ in range(2000)]
        data = [{**tokenizer(str(row["text"])), "label": row["label"]} for row in rows]
        arguments = TrainingArguments(
            folder,
            max_steps=STEPS,
            per_device_train_batch_size=32,
            learning_rate=1e-3,
            save_strategy="no",
            report_to=[],
            logging_steps=40,
            disable_tqdm=True,
        )
        Trainer(model, arguments, train_dataset=data, processing_class=tokenizer).train()
        model.save_pretrained(Path(folder) / "tuned")
        tokenizer.save_pretrained(Path(folder) / "tuned")
        classify = pipeline("text-classification", model=str(Path(folder) / "tuned"), device="cpu")
    right = 0
    for animal, sound in pairs:
        row = example(animal, sound)
        answer = classify(str(row["text"]))[0]
        right += (answer["label"] == "right") == bool(row["label"])
        print(f"the {animal:6} {sound:7} {answer['label']:5} ({answer['score']:.0%})")
    print(f"{right} of {len(pairs)} judged right")


if __name__ == "__main__":
    main()
