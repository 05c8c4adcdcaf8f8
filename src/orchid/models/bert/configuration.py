"""The settings of Orchid-BERT, in the manner of Hugging Face."""

from dataclasses import fields
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from orchid.mixers.registry import list_mixers
from orchid.nn.mlp import MLPS
from orchid.ops.checks import check_at_least, check_choice, check_fraction, did_you_mean

POSITIONS = ("learned", "sinusoidal", "none")
POOLINGS = ("cls", "mean")
# What Hugging Face itself writes into or passes to a configuration, beside its fields.
LIBRARY_KEYS = {
    "_attn_implementation",
    "_commit_hash",
    "_name_or_path",
    "attn_implementation",
    "auto_map",
    "bos_token_id",
    "custom_pipelines",
    "eos_token_id",
    "experts_implementation",
    "is_decoder",
    "model_type",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "quantization_config",
    "sep_token_id",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "use_cache",
}
# What pipelines and the library's example scripts hand to a configuration although it is meant for others.
LOADING_KEYS = {
    "_from_auto",
    "_from_pipeline",
    "adapter_kwargs",
    "code_revision",
    "device_map",
    "dtype",
    "finetuning_task",
    "ignore_mismatched_sizes",
    "key_mapping",
    "low_cpu_mem_usage",
    "max_memory",
    "offload_buffers",
    "offload_folder",
    "torchscript",
    "tp_plan",
    "trust_remote_code",
    "use_auth_token",
    "use_kernels",
    "use_safetensors",
    "variant",
    "weights_only",
}


@strict
class OrchidBertConfig(PreTrainedConfig):
    """Settings of an encoder whose blocks have any registered mixer; an unknown key is an error.

    Args:
        vocab_size: token ids.
        hidden_size: D.
        num_hidden_layers: blocks.
        max_position_embeddings: N, the longest input, and the length on which Orchid's kernels live.
        mixer: a name from ``orchid.list_mixers()``.
        mixer_options: that mixer's keyword options.
        mlp: "plain" or "gated".
        mlp_blocks: blocks on the diagonal of the MLP's matrices; 1 is dense.
        mlp_expansion: the MLP's hidden size over D.
        position_embeddings: "learned", "sinusoidal" or "none".
        type_vocab_size: segment ids.
        hidden_dropout_prob: on the embedding and in every block.
        classifier_dropout: before a task's head; None is ``hidden_dropout_prob``.
        classifier_pooling: "cls" or "mean" (over real tokens), for sequence classification.
        layer_norm_eps: of every LayerNorm outside the blocks.
        initializer_range: standard deviation of linear and embedding weights outside the mixers.
        sparse_prediction: in training, compute masked-LM logits at labelled positions only.
        pad_token_id: id of the padding token.
        tie_word_embeddings: share the word embedding with the masked-LM head.
    """

    model_type = "orchid_bert"

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    max_position_embeddings: int = 512
    mixer: str = "orchid"
    mixer_options: dict[str, Any] | None = None
    mlp: str = "gated"
    mlp_blocks: int = 4
    mlp_expansion: int = 4
    position_embeddings: str = "learned"
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    classifier_pooling: str = "cls"
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    sparse_prediction: bool = False
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        _check_known(kwargs, LIBRARY_KEYS)
        self.mixer_options = dict(self.mixer_options or {})
        self.check_settings()
        super().__post_init__(**kwargs)

    def check_settings(self) -> None:
        """Raise where a value is wrong: here, and when a model is built of settings that were changed since."""
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings", "type_vocab_size"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("mlp_blocks", self.mlp_blocks, 1)
        check_at_least("mlp_expansion", self.mlp_expansion, 1)
        check_choice("mixer", self.mixer, list_mixers())
        check_choice("mlp", self.mlp, MLPS)
        check_choice("position_embeddings", self.position_embeddings, POSITIONS)
        check_choice("classifier_pooling", self.classifier_pooling, POOLINGS)
        check_fraction("hidden_dropout_prob", self.hidden_dropout_prob)
        if self.classifier_dropout is not None:
            check_fraction("classifier_dropout", self.classifier_dropout)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Return the configuration of stored settings and of changes to them, checked together.

        A change that is no setting is an error, unless the caller asks to have it back (``return_unused_kwargs``).
        """
        library = {field.name for field in fields(PreTrainedConfig)}
        own = {field.name for field in fields(cls)} - library
        changes = {key: kwargs.pop(key) for key in list(kwargs) if key in own}
        if changes.get("mixer", config_dict.get("mixer")) != config_dict.get("mixer"):
            changes.setdefault("mixer_options", {})  # the stored ones are another mixer's
        if not kwargs.get("return_unused_kwargs", False):
            _check_known(kwargs, LIBRARY_KEYS | LOADING_KEYS | library | {"return_unused_kwargs"})
        return super().from_dict({**config_dict, **changes}, **kwargs)

    def save_pretrained(self, save_directory: Any, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Write config.json; an attribute that could not be loaded again is an error."""
        known = {field.name for field in fields(type(self))}
        _check_known(self.to_dict(), LIBRARY_KEYS | known | {"transformers_version"})
        super().save_pretrained(save_directory, push_to_hub, **kwargs)


def _check_known(given: dict[str, Any], library: set[str]) -> None:
    """Raise for a key that is no setting and none of the library's."""
    for key in given:
        if key not in library:
            known = [field.name for field in fields(OrchidBertConfig)]
            raise ValueError(f"OrchidBertConfig has no setting {key!r}{did_you_mean(key, known)}")
