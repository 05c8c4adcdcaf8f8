"""Orchid-BERT's encoder: embeddings and blocks with any registered mixer, as a Hugging Face model."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput

from orchid.mixers.registry import create_mixer
from orchid.models.bert.configuration import OrchidBertConfig
from orchid.models.block import OrchidBlock
from orchid.models.sequence import sinusoidal_positions

# Arguments that trainers, adapters and pipelines pass to every model and that mean nothing to this one.
WITHOUT_EFFECT = ("num_items_in_batch", "output_attentions", "use_cache", "head_mask", "return_loss")
DRAWN = "_is_hf_initialized"  # the library's mark on modules and tensors that it leaves as they are


def check_arguments(given: dict[str, Any]) -> None:
    """Accept of further arguments those that may go without effect; a misspelt one must not."""
    for name in given:
        if name not in WITHOUT_EFFECT:
            raise TypeError(f"Orchid-BERT takes no argument {name!r}")


def real_tokens(attention_mask: Tensor, given: Tensor) -> Tensor:
    """Return a mask (B, L) as the layers take it, True at real tokens; one that means something else is an error."""
    if attention_mask.is_floating_point():
        raise ValueError(
            f"attention_mask has dtype {attention_mask.dtype}: masks that are added to scores are not supported; "
            "give integers or booleans, 1 at real tokens"
        )
    if attention_mask.shape != given.shape[:2]:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; expected (B, L) = {tuple(given.shape[:2])}"
        )
    return attention_mask.bool()


class OrchidBertEmbeddings(nn.Module):
    """Word, position and segment embeddings, summed, normalised."""

    def __init__(self, config: OrchidBertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.max_length, self.kind = config.max_position_embeddings, config.position_embeddings
        self.word_embeddings: nn.Module = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(self.max_length, size) if self.kind == "learned" else None
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        token_type_ids: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        """Return (B, L, D) of ids (B, L), or of word embeddings (B, L, D); positions begin where the mask does."""
        x = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        length = x.shape[1]
        if length > self.max_length:
            raise ValueError(
                f"the input has {length} tokens, more than max_position_embeddings={self.max_length}; truncate it"
            )
        if self.kind != "none":
            x = x + self._positions(x, mask)
        if token_type_ids is None:
            token_type_ids = torch.zeros((), dtype=torch.long, device=x.device)
        return self.dropout(self.norm(x + self.token_type_embeddings(token_type_ids)))

    def _positions(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the embeddings of positions, (L, D); (B, L, D) with a mask, where padding in front takes none."""
        places = torch.arange(x.shape[1], device=x.device)
        if mask is not None:
            places = (places - mask.int().argmax(dim=1, keepdim=True)).clamp(min=0)
        if self.position_embeddings is not None:
            learned: Tensor = self.position_embeddings(places)
            return learned
        return sinusoidal_positions(x.shape[1], x.shape[2], x.device).to(x.dtype)[places]


class OrchidBertLayer(GradientCheckpointingLayer, OrchidBlock):
    """A block that can be checkpointed by ``gradient_checkpointing_enable()``."""


class OrchidBertPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation.

    Linear and embedding weights are drawn from N(0, ``initializer_range``), as BERT's are; mixers start as they do
    alone. Attention is the exception: inside BERT its projections start as BERT's do.
    """

    config_class = OrchidBertConfig
    base_model_prefix = "orchid_bert"
    supports_gradient_checkpointing = True
    # A loss here is the mean over its own batch: the Trainer divides it by its accumulated batches.
    accepts_loss_kwargs = False
    _no_split_modules = ["OrchidBertLayer"]  # noqa: RUF012

    def __init__(self, config: OrchidBertConfig) -> None:
        config.check_settings()
        super().__init__(config)

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Draw what is not drawn yet: mixers by their own constructors, the rest by ``_init_weights``."""
        if self.config.mixer != "attention":
            for layer in [module for module in self.modules() if isinstance(module, OrchidBertLayer)]:
                self._draw_mixer(layer.mixer)
        super().initialize_weights()

    def _draw_mixer(self, mixer: nn.Module) -> None:
        """Give the tensors of a mixer that no constructor drew and no file had the values of a new one."""
        tensors = mixer.state_dict(keep_vars=True)
        missing = [name for name, tensor in tensors.items() if not getattr(tensor, DRAWN, False)]
        if missing and not getattr(mixer, DRAWN, False):
            config = self.config
            sizes, options = (config.hidden_size, config.max_position_embeddings), config.mixer_options
            with torch.device("cpu"):
                new = create_mixer(config.mixer, *sizes, **options).state_dict()
            for name in missing:
                tensors[name].copy_(new[name])
        _mark_drawn(mixer)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Draw linear and embedding weights as BERT does; every other module has its own way."""
        std = self.config.initializer_range
        if type(module) is nn.Linear:
            init.normal_(module.weight, std=std)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=std)
        elif callable(reset := getattr(module, "reset_parameters", None)):
            reset()


def _mark_drawn(mixer: nn.Module) -> None:
    """Tell the library that a mixer is initialised, unless it has no memory yet."""
    if not any(tensor.is_meta for tensor in mixer.state_dict().values()):
        for module in mixer.modules():
            setattr(module, DRAWN, True)


class OrchidBertModel(OrchidBertPreTrainedModel):
    """Embeddings, a stack of blocks, a norm: tokens in, one vector per token out."""

    def __init__(self, config: OrchidBertConfig) -> None:
        super().__init__(config)
        self.embeddings = OrchidBertEmbeddings(config)
        self.layers = nn.ModuleList(
            OrchidBertLayer(
                config.hidden_size,
                config.max_position_embeddings,
                mixer=config.mixer,
                mixer_options=config.mixer_options,
                mlp=config.mlp,
                blocks=config.mlp_blocks,
                expansion=config.mlp_expansion,
                dropout=config.hidden_dropout_prob,
            )
            for _ in range(config.num_hidden_layers)
        )
        if config.mixer != "attention":
            for layer in self.layers.children():
                _mark_drawn(layer.get_submodule("mixer"))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the word embedding."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the word embedding."""
        self.embeddings.word_embeddings = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **without_effect: Any,
    ) -> Any:
        """Encode tokens (B, L).

        Args:
            input_ids: (B, L) token ids, or
            inputs_embeds: (B, L, D) word embeddings.
            attention_mask: (B, L), 0 at padding, anywhere; what stands there never changes a real token's output.
            token_type_ids: (B, L) segment ids.
            output_hidden_states: also return the input of every block and the output.
            return_dict: return an output object (default) or a tuple.
            **without_effect: what the library passes to every model, see ``WITHOUT_EFFECT``; all else is an error.
        """
        check_arguments(without_effect)
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        wants_dict = self.config.return_dict if return_dict is None else return_dict
        given = input_ids if inputs_embeds is None else inputs_embeds
        if given is None or (input_ids is not None and inputs_embeds is not None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        mask = None if attention_mask is None else real_tokens(attention_mask, given)
        x = self.embeddings(input_ids, inputs_embeds, token_type_ids, mask)
        states: tuple[Any, ...] = ()
        for layer in self.layers:
            states += (x,) if wants_states else ()
            x = layer(x, mask)
        x = self.norm(x)
        states += (x,) if wants_states else ()
        if not wants_dict:
            return (x, states) if wants_states else (x,)
        return BaseModelOutput(last_hidden_state=x, hidden_states=states if wants_states else None)
