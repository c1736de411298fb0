"""Vision models of the Hugging Face hub: small ones with weights by chance, saved in a folder."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dptune.errors import InvalidInput, MissingExtra
from dptune.features.find import find_backbone
from dptune.features.processors import transform_from
from dptune.features.transform import Transform

transformers = pytest.importorskip("transformers")

HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
PREPARED = {"size": {"height": 32, "width": 32}, "resample": 3, **HALF}
SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 32,
    "patch_size": 8,
}
STAGES = {"hidden_sizes": [4, 6, 8, 10], "depths": [1, 1, 1, 1]}


def model(kind: str) -> Any:
    torch.manual_seed(0)
    made = {
        "vit": lambda: transformers.ViTModel(transformers.ViTConfig(**SMALL)),
        "beit": lambda: transformers.BeitModel(transformers.BeitConfig(**SMALL)),
        "dinov2": lambda: transformers.Dinov2Model(transformers.Dinov2Config(**SMALL)),
        "clip-vision": lambda: transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**SMALL)),
        "convnext": lambda: transformers.ConvNextModel(transformers.ConvNextConfig(**STAGES)),
        "resnet": lambda: transformers.ResNetModel(
            transformers.ResNetConfig(**STAGES, embedding_size=4)
        ),
    }
    return made[kind]().eval()


def saved(made: Any, folder: Path, prepared: dict[str, Any] | None = None) -> str:
    made.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared or PREPARED))
    return f"hf:{folder}"


def pictures(size: int = 32) -> Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("kind", ["vit", "beit", "dinov2", "clip-vision"])
def test_models_of_tokens_give_every_kind(kind: str, tmp_path: Path) -> None:
    made = model(kind)
    name = saved(made, tmp_path)
    with torch.no_grad():
        output = made(pictures(), output_hidden_states=True)
    tokens = output.last_hidden_state
    assert tokens.shape == (2, 17, 8)  # a class and 4 x 4 patches
    expected = {
        "pooled": output.pooler_output,
        "class-token": tokens[:, 0],
        "blocks": torch.cat([state[:, 1:].mean(1) for state in output.hidden_states[1:]], 1),
        "grid4": tokens[:, 1:].transpose(1, 2).flatten(1),
    }
    for features, wanted in expected.items():
        backbone = find_backbone(name, features=features)
        torch.testing.assert_close(backbone.module(pictures()), wanted)
        assert backbone.columns == wanted.shape[1]


@pytest.mark.parametrize("kind", ["convnext", "resnet"])
def test_models_of_maps_have_no_class_token(kind: str, tmp_path: Path) -> None:
    made = model(kind)
    name = saved(made, tmp_path)
    with torch.no_grad():
        output = made(pictures(64), output_hidden_states=True)
    expected = {
        "pooled": output.pooler_output.flatten(1),
        "blocks": torch.cat([state.mean((2, 3)) for state in output.hidden_states[1:]], 1),
    }
    for features, wanted in expected.items():
        backbone = find_backbone(name, features=features, size=64)
        torch.testing.assert_close(backbone.module(pictures(64)), wanted)
    assert find_backbone(name, features="blocks").columns == 4 + 6 + 8 + 10
    assert find_backbone(name, features="grid4", size=64).columns == 160
    with pytest.raises(InvalidInput, match="it has pooled, blocks, grid4"):
        find_backbone(name, features="class-token")


def test_a_model_that_reads_texts_as_well_gives_what_it_sees(tmp_path: Path) -> None:
    words = {
        name: value for name, value in SMALL.items() if name not in ("image_size", "patch_size")
    }
    config = transformers.CLIPConfig(
        text_config={**words, "vocab_size": 50}, vision_config=SMALL, projection_dim=8
    )
    torch.manual_seed(0)
    made = transformers.CLIPModel(config).eval()
    name = saved(made, tmp_path)
    with torch.no_grad():
        wanted = made.vision_model(pictures()).pooler_output
    torch.testing.assert_close(find_backbone(name).module(pictures()), wanted)


def test_registers_are_neither_class_nor_patches(tmp_path: Path) -> None:
    config = transformers.Dinov2WithRegistersConfig(**SMALL, num_register_tokens=3)
    torch.manual_seed(0)
    made = transformers.Dinov2WithRegistersModel(config).eval()
    name = saved(made, tmp_path)
    with torch.no_grad():
        tokens = made(pictures()).last_hidden_state
    assert tokens.shape[1] == 1 + 3 + 16
    wanted = tokens[:, 4:].transpose(1, 2).flatten(1)
    torch.testing.assert_close(find_backbone(name, features="grid4").module(pictures()), wanted)


def test_a_pooler_that_is_not_in_the_file_is_not_made_up(tmp_path: Path) -> None:
    """Classifiers are saved without one; filled by chance, it would make features of chance."""
    torch.manual_seed(0)
    made = transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL)).eval()
    name = saved(made, tmp_path)
    backbone = find_backbone(name)
    with torch.no_grad():
        wanted = made.vit(pictures()).last_hidden_state[:, 0]
    torch.testing.assert_close(backbone.module(pictures()), wanted)
    assert find_backbone(name).digest == backbone.digest


def test_weights_that_lack_a_layer_are_refused(tmp_path: Path) -> None:
    name = saved(model("vit"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(InvalidInput, match="not complete"):
        find_backbone(name)


def test_another_size_is_taken_where_the_model_can(tmp_path: Path) -> None:
    made = model("vit")
    name = saved(made, tmp_path)
    backbone = find_backbone(name, size=64)
    with torch.no_grad():
        wanted = made(pictures(64), interpolate_pos_encoding=True).pooler_output
    torch.testing.assert_close(backbone.module(pictures(64)), wanted)


def test_the_digest_is_of_weights_configuration_and_preparation(tmp_path: Path) -> None:
    made = model("vit")
    name = saved(made, tmp_path / "a")
    digest = find_backbone(name).digest
    assert find_backbone(saved(made, tmp_path / "b")).digest == digest
    made.config.layer_norm_eps = 1e-3
    assert find_backbone(saved(made, tmp_path / "c")).digest != digest
    other = saved(model("vit"), tmp_path / "d", {**PREPARED, "resample": 2})
    assert find_backbone(other).digest != digest


def test_only_safetensors_are_read(tmp_path: Path) -> None:
    name = saved(model("vit"), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model("vit").state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InvalidInput, match="Only safetensors files are read"):
        find_backbone(name)


def test_code_of_a_repository_is_not_run(tmp_path: Path) -> None:
    name = saved(model("vit"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    own = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    config.update(model_type="own", auto_map=own)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InvalidInput, match="with their own code"):
        find_backbone(name)
    assert not (tmp_path / "ran").exists()


def test_masked_training_models_are_refused(tmp_path: Path) -> None:
    """They hide parts of the picture by chance whenever they are run."""
    torch.manual_seed(0)
    made = transformers.ViTMAEModel(transformers.ViTMAEConfig(**SMALL))
    with pytest.raises(InvalidInput, match="different features for the same"):
        find_backbone(saved(made, tmp_path))


def test_what_is_not_there_is_answered_by_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InvalidInput, match=r"nobody/nothing could not be loaded.*give its folder"):
        find_backbone("hf:nobody/nothing@v1")
    with pytest.raises(InvalidInput, match=r"no model that can be opened: it lacks model\.safet"):
        find_backbone(f"hf:{tmp_path}")
    with pytest.raises(InvalidInput, match="needs the name"):
        find_backbone("hf:")


def test_without_a_preprocessor_nothing_is_guessed(tmp_path: Path) -> None:
    name = saved(model("vit"), tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(InvalidInput, match=r"no preprocessor_config.json"):
        find_backbone(name)
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": PREPARED}))
    assert find_backbone(name).transform.squash


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"dptune\[vision\]"):
        find_backbone("hf:google/vit-base-patch16-224")


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        ({"size": 224}, {"size": 224, "squash": True}),
        ({"size": {"height": 224, "width": 224}}, {"size": 224, "squash": True}),
        (
            {"size": 256, "do_center_crop": True, "crop_size": 224, "resample": 3},
            {"size": 224, "crop": 0.875, "resampling": "bicubic"},
        ),
        (
            {
                "size": {"shortest_edge": 256},
                "do_center_crop": True,
                "crop_size": {"height": 224, "width": 224},
                "rescale_factor": 0.00392156862745098,
            },
            {"size": 224, "crop": 0.875},
        ),
        (
            {"size": {"height": 256, "width": 256}, "do_center_crop": True, "crop_size": 224},
            {"size": 224, "crop": 0.875, "squash": True},
        ),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, {"size": 224, "crop": 0.875}),
        ({"size": {"shortest_edge": 384}, "crop_pct": 1.0}, {"size": 384, "squash": True}),
        ({"size": {"shortest_edge": 300}}, {"size": 300}),
    ],
)
def test_preparation_is_read_from_the_models_own_file(
    stored: dict[str, Any], wanted: dict[str, Any]
) -> None:
    half = {"mean": (0.5, 0.5, 0.5), "deviation": (0.5, 0.5, 0.5)}
    assert transform_from({**HALF, **stored}) == Transform(
        **{"resampling": "bilinear", **half, **wanted}
    )


def test_pictures_that_are_not_normalised_stay_between_0_and_1() -> None:
    transform = transform_from({"size": 32, "do_normalize": False})
    assert transform.mean == (0, 0, 0)
    assert transform.deviation == (1, 1, 1)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({"do_pad": True}, "do_pad"),
        ({"do_flip_channel_order": True}, "do_flip_channel_order"),
        ({"do_resize": False}, "do_resize"),
        ({"rescale_factor": 1 / 127.5}, "rescale_factor"),
        ({"resample": 0}, "resample 0"),
        ({"image_mean": None}, "image_mean"),
        ({"size": {"height": 224, "width": 192}}, "not square"),
        ({"size": {"longest_edge": 224}}, "longest_edge"),
        ({"size": None}, "size of None"),
        (
            {"do_center_crop": True, "crop_size": 256},
            "crop_size must be at most the size, 224; got 256",
        ),
        ({"image_std": [0.5, 0.5]}, "deviation"),
    ],
)
def test_preparation_that_cannot_be_done_is_refused_by_name(
    stored: dict[str, Any], said: str, tmp_path: Path
) -> None:
    name = saved(model("vit"), tmp_path, {**HALF, "size": 224, **stored})
    with pytest.raises(InvalidInput, match=said):
        find_backbone(name)
