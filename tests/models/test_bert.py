"""Orchid-BERT as a Hugging Face citizen: sizes, configuration, saving, initialisation."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="needs transformers")
from safetensors.torch import load_file, save_file
from tiny_bert import tiny, tokens
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
)

from orchid.mixers.registry import create_mixer, list_mixers
from orchid.models.bert import (
    OrchidBertConfig,
    OrchidBertForMaskedLM,
    OrchidBertForSequenceClassification,
    OrchidBertModel,
    preset,
)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("orchid-bert-base", 77),
        ("orchid-bert-large", 254),
        ("bert-base", 110),
        ("m2-bert-base", 80),
        ("m2-bert-large", 260),
    ],
)
def test_parameter_counts_of_the_paper(name: str, millions: float) -> None:
    with torch.device("meta"):
        model = OrchidBertForMaskedLM(preset(name))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(millions * 1e6, rel=0.01)


def test_bert_large_has_the_published_count() -> None:
    """335.2 million with its masked-LM head; the paper rounds to 340."""
    with torch.device("meta"):
        model = OrchidBertForMaskedLM(preset("bert-large"))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(335.2e6, rel=0.001)


class TestConfig:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hiden_size": 32}, "no setting 'hiden_size'.*did you mean.*hidden_size"),
            ({"mixer": "orchd"}, "mixer='orchd'"),
            ({"hidden_size": 0}, "hidden_size=0"),
            ({"classifier_pooling": "max"}, "classifier_pooling='max'"),
            ({"mixer_options": {"ordr": 2}}, "ordr"),
        ],
    )
    def test_wrong_settings_say_what_is_wrong(self, changes: dict[str, object], message: str) -> None:
        with pytest.raises((ValueError, TypeError), match=message):
            OrchidBertModel(tiny(**changes))

    def test_survives_saving(self, tmp_path: Path) -> None:
        config = tiny(mixer_options={"conditioning": "cross"}, num_labels=4, classifier_pooling="mean")
        config.save_pretrained(tmp_path)
        loaded = AutoConfig.from_pretrained(tmp_path)
        assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hiden_size": 4}, "no setting 'hiden_size'.*did you mean.*hidden_size"),
            ({"classifier_pooling": "meen"}, "classifier_pooling='meen'"),
            ({"position_embeddings": "lerned"}, "position_embeddings='lerned'"),
            ({"hidden_size": 0}, "hidden_size=0"),
        ],
    )
    def test_changes_to_what_is_loaded_are_checked(
        self, tmp_path: Path, changes: dict[str, object], message: str
    ) -> None:
        OrchidBertModel(tiny()).save_pretrained(tmp_path)
        for load in (OrchidBertConfig.from_pretrained, AutoConfig.from_pretrained):
            with pytest.raises(ValueError, match=message):
                load(tmp_path, **changes)
        with pytest.raises((ValueError, TypeError), match=next(iter(changes))):
            AutoModelForSequenceClassification.from_pretrained(tmp_path, **changes)

    def test_changed_since(self) -> None:
        config = tiny()
        config.classifier_pooling = "meen"
        with pytest.raises(ValueError, match="classifier_pooling='meen'"):
            OrchidBertForSequenceClassification(config)

    def test_what_the_library_passes(self, tmp_path: Path) -> None:
        OrchidBertModel(tiny()).save_pretrained(tmp_path)
        given = {"mlp": "plain", "num_labels": 3, "foo": 1, "return_unused_kwargs": True}
        config, unused = AutoConfig.from_pretrained(tmp_path, **given)
        assert (config.mlp, config.num_labels, unused) == ("plain", 3, {"foo": 1})
        config = AutoConfig.from_pretrained(tmp_path, trust_remote_code=False, device_map="cpu", dtype=torch.float32)
        assert config.dtype == torch.float32
        given = {"quantization_config": {"quant_method": "torchao"}, "custom_pipelines": {}}
        tiny(**given).save_pretrained(tmp_path)
        assert OrchidBertConfig.from_pretrained(tmp_path).custom_pipelines == {}

    def test_what_is_saved_can_be_loaded(self, tmp_path: Path) -> None:
        """What the Trainer takes from a tokenizer, and what it is told at once that it could not."""
        config = tiny()
        config.bos_token_id, config.eos_token_id = 2, 3
        OrchidBertModel(config).save_pretrained(tmp_path)
        assert OrchidBertModel.from_pretrained(tmp_path).config.eos_token_id == 3
        config.my_note = "x"
        with pytest.raises(ValueError, match="no setting 'my_note'"):
            OrchidBertModel(config).save_pretrained(tmp_path)

    def test_another_mixer_leaves_the_options_of_the_first(self, tmp_path: Path) -> None:
        tiny(mixer_options={"filter_width": 8}).save_pretrained(tmp_path)
        assert OrchidBertConfig.from_pretrained(tmp_path, mixer="attention").mixer_options == {}
        assert OrchidBertConfig.from_pretrained(tmp_path, mlp="plain").mixer_options == {"filter_width": 8}

    def test_a_preset_with_another_mixer(self) -> None:
        assert preset("orchid-bert-base", mixer="attention").mixer_options == {}
        assert preset("orchid-bert-base", mixer="hyena", mixer_options={"order": 3}).mixer_options == {"order": 3}
        assert preset("orchid-bert-base", mixer="orchid").mixer_options == preset("orchid-bert-base").mixer_options


class TestSaving:
    @pytest.mark.parametrize("mixer", ["orchid", "attention", "monarch", "performer"])
    def test_bit_exact_in_a_new_process(self, tmp_path: Path, mixer: str) -> None:
        torch.manual_seed(0)
        model, ids = OrchidBertForMaskedLM(tiny(mixer=mixer)).eval(), tokens()
        model.save_pretrained(tmp_path)
        loaded = AutoModelForMaskedLM.from_pretrained(tmp_path)
        for name, value in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], value), name
        if mixer == "orchid":  # the others' products depend on where in memory a matrix begins, in the last bit
            assert torch.equal(loaded(ids).logits, model(ids).logits)
        torch.save({"ids": ids, "logits": loaded(ids).logits}, tmp_path / "expected.pt")
        script = (
            "import sys, torch, orchid.models.bert\n"
            "from transformers import AutoModelForMaskedLM\n"
            "model = AutoModelForMaskedLM.from_pretrained(sys.argv[1])\n"
            "expected = torch.load(sys.argv[1] + '/expected.pt', weights_only=True)\n"
            "assert torch.equal(model(expected['ids']).logits, expected['logits'])\n"
        )
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)

    def test_tied_weights_are_stored_once(self, tmp_path: Path) -> None:
        from safetensors import safe_open

        model = OrchidBertForMaskedLM(tiny())
        model.save_pretrained(tmp_path)
        with safe_open(tmp_path / "model.safetensors", "pt") as stored:
            assert not {"head.decoder.weight", "orchid_bert.embeddings.word_embeddings.weight"} <= set(stored.keys())
        loaded = OrchidBertForMaskedLM.from_pretrained(tmp_path)
        assert loaded.head.decoder.weight is loaded.orchid_bert.embeddings.word_embeddings.weight

    def test_a_new_head_leaves_the_rest_as_it_was(self, tmp_path: Path) -> None:
        model = OrchidBertForMaskedLM(tiny())
        model.save_pretrained(tmp_path)
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
        for name, value in model.orchid_bert.state_dict().items():
            assert torch.equal(loaded.orchid_bert.state_dict()[name], value), name
        assert float(loaded.classifier.weight.detach().std()) == pytest.approx(0.02, rel=0.3)

    def test_dtype(self, tmp_path: Path) -> None:
        OrchidBertModel(tiny()).save_pretrained(tmp_path)
        model = AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert model.dtype == torch.bfloat16
        assert model(tokens()).last_hidden_state.dtype == torch.bfloat16


class TestInitialisation:
    """The library would draw every linear and convolution from N(0, 0.02)."""

    @pytest.mark.parametrize("name", [name for name in list_mixers() if name != "attention"])
    def test_mixers_keep_their_own(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What their constructors draw is what a new model has, and one whose file lacks them."""
        drawn: list[dict[str, torch.Tensor]] = []

        def recorded(*given: Any, **options: Any) -> nn.Module:
            mixer = create_mixer(*given, **options)
            drawn.append({key: value.clone() for key, value in mixer.state_dict().items()})
            return mixer

        monkeypatch.setattr("orchid.models.block.create_mixer", recorded)
        monkeypatch.setattr("orchid.models.bert.encoder.create_mixer", recorded)
        model = OrchidBertModel(tiny(mixer=name, num_hidden_layers=1))
        stored = {key: value for key, value in model.state_dict().items() if ".mixer." not in key}
        model.config.save_pretrained(tmp_path)
        save_file(stored, tmp_path / "model.safetensors")
        loaded = OrchidBertModel.from_pretrained(tmp_path)
        assert len(drawn) == 3 and drawn[1][next(iter(drawn[1]))].is_meta
        for inside, expected in ((model, drawn[0]), (loaded, drawn[2])):
            for key, value in inside.layers[0].mixer.state_dict().items():
                assert torch.equal(value, expected[key]), key
        assert all(torch.equal(loaded.state_dict()[key], value) for key, value in stored.items())

    def test_only_what_is_missing_is_drawn(self, tmp_path: Path) -> None:
        model = OrchidBertModel(tiny(mixer="mamba"))
        model.save_pretrained(tmp_path)
        stored = load_file(tmp_path / "model.safetensors")
        del stored["layers.0.mixer.sides.0.dt_proj.weight"]
        save_file(stored, tmp_path / "model.safetensors")
        loaded = OrchidBertModel.from_pretrained(tmp_path).state_dict()
        assert all(torch.equal(loaded[key], value) for key, value in stored.items())
        bound = 2**-0.5  # of rank 2
        assert bound / 2 < float(loaded["layers.0.mixer.sides.0.dt_proj.weight"].abs().max()) <= bound

    def test_attention_starts_as_in_bert(self) -> None:
        mixer = OrchidBertModel(tiny(mixer="attention", hidden_size=128)).layers[0].mixer
        assert float(mixer.in_proj.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
        assert not mixer.out_proj.bias.detach().any()

    def test_outside_the_mixers(self) -> None:
        model = OrchidBertForMaskedLM(tiny(hidden_size=128, mlp="plain", mlp_blocks=1))
        for weight in (model.head.dense.weight, model.orchid_bert.layers[0].mlp.up.weight):
            assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05)
