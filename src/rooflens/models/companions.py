"""Inputs that go with images, sound or series: their places and sizes, and what else a family asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rooflens.models.forward_inputs import InputSizes

_Given = Mapping[str, Any]
QUESTION = 32
"""Tokens of a question to a querying transformer."""
REGIONS = 36
"""Objects that a detector has found in an image."""
HISTORY = 20
"""Steps of a game, as the Decision Transformer was trained on."""
HOP = 160
"""Samples of sound between two frames of a spectrum."""


def companions(sizes: InputSizes, given: _Given) -> dict[str, Any]:
    """Return what else a model takes beside its images, sound or series, or alone where it has no such inputs."""
    made: dict[str, Any] = {}
    for name, (beside, make) in COMPANIONS.items():
        if name in sizes.accepted and (not beside or beside in given):
            made |= make(sizes, given)
    return made


def _ones(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="cpu")


def _question(sizes: InputSizes, given: _Given) -> _Given:
    words = sizes.part("qformer_config").vocab_size
    return {"qformer_input_ids": torch.randint(0, words, (sizes.batch, QUESTION), device="cpu")}


def _image_places(sizes: InputSizes, given: _Given) -> _Given:
    """The first tokens stand for the image."""
    places = torch.arange(sizes.tokens, device="cpu") < sizes.config.latent_query_num
    return {"image_embeds_position_mask": places.long().expand(sizes.batch, -1)}


def _seen_images(sizes: InputSizes, given: _Given) -> _Given:
    """Every token sees each image, where images are a dimension of their own."""
    images = given["pixel_values"]
    if images.dim() != 5:
        return {}
    return {"image_attention_mask": _ones(sizes.batch, sizes.tokens, images.shape[1])}


def _merged(name: str) -> Callable[[InputSizes, _Given], _Given]:
    """How many patches become one along a side."""
    return lambda sizes, given: {name: torch.full((sizes.batch,), 2, device="cpu")}


def _large_image(sizes: InputSizes, given: _Given) -> _Given:
    part = sizes.part("high_res_vision_config")
    return {"high_res_pixel_values": torch.randn(sizes.batch, 3, part.image_size, part.image_size)}


def _regions(sizes: InputSizes, given: _Given) -> _Given:
    config, shape = sizes.config, (sizes.batch, REGIONS)
    return {
        "visual_feats": torch.randn(*shape, config.visual_feat_dim),
        "visual_pos": torch.rand(*shape, config.visual_pos_dim),
    }


def _game(sizes: InputSizes, given: _Given) -> _Given:
    config, shape = sizes.config, (sizes.batch, HISTORY)
    return {
        "states": torch.randn(*shape, config.state_dim),
        "actions": torch.randn(*shape, config.act_dim),
        "rewards": torch.randn(*shape, 1),
        "returns_to_go": torch.randn(*shape, 1),
        "timesteps": torch.arange(HISTORY, device="cpu").expand(shape),
    }


def _codes(sizes: InputSizes, given: _Given) -> _Given:
    """What FLAVA is trained on beside an image and a text: a masked copy of each, and the image for the codebook."""
    config, side = (
        sizes.config.image_config,
        sizes.config.image_config.image_size // sizes.config.image_config.patch_size,
    )
    masked = torch.randint(0, sizes.config.text_config.vocab_size, (sizes.batch, sizes.tokens), device="cpu")
    return {
        "input_ids_masked": masked,
        "codebook_pixel_values": torch.rand(sizes.batch, config.num_channels, 8 * side, 8 * side),
        "bool_masked_pos": torch.zeros(sizes.batch, side, side, dtype=torch.bool, device="cpu"),
    }


def _future(sizes: InputSizes, given: _Given) -> _Given:
    """What a forecast is compared with in training, from which the decoder reads."""
    config = sizes.config
    return {
        "future_values": torch.randn(sizes.batch, config.prediction_length),
        "future_time_features": torch.randn(sizes.batch, config.prediction_length, config.num_time_features),
    }


def _queries(sizes: InputSizes, given: _Given) -> _Given:
    config = sizes.config
    return {
        "query_embeds": torch.randn(sizes.batch, QUESTION, config.hidden_size),
        "encoder_hidden_states": torch.randn(sizes.batch, 257, config.encoder_hidden_size),
    }


COMPANIONS: Mapping[str, tuple[str, Callable[[InputSizes, _Given], _Given]]] = {
    "qformer_input_ids": ("pixel_values", _question),
    "image_embeds_position_mask": ("pixel_values", _image_places),
    "image_attention_mask": ("pixel_values", _seen_images),
    "image_merge_sizes": ("pixel_values", _merged("image_merge_sizes")),
    "merge_sizes": ("pixel_values", _merged("merge_sizes")),
    "high_res_pixel_values": ("pixel_values", _large_image),
    "codebook_pixel_values": ("pixel_values", _codes),
    "tile_fine_mask": (  # of the same model: which tiles are none of padding
        "pixel_values",
        lambda s, given: {"pixel_attention_mask": _ones(*given["pixel_values"].shape[:2], dtype=torch.bool)},
    ),
    "is_longer": ("input_features", lambda s, given: {"is_longer": _ones(s.batch, 1, dtype=torch.bool) & False}),
    "chunk_sample_lengths": (
        "input_features",
        lambda s, given: {
            "chunk_sample_lengths": _ones(s.batch) * HOP * max(given["input_features"].shape[1:]),
        },
    ),
    "future_time_features": ("past_time_features", _future),
    "visual_feats": ("", _regions),
    "returns_to_go": ("", _game),
    "query_embeds": ("", _queries),
}
"""By the argument of forward that tells of them: what has to be given beside it, and what makes them."""
