"""Inputs of transformers' models, from the configuration and the arguments of `forward`.

Tokens are random and no sequence is padded, so there are no attention masks. Integers have values even where nothing
else has: some of them, like the grids of images, decide shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from rooflens.models.companions import companions

DEFAULT_TOKENS = 512
DEFAULT_IMAGE = 448
"""Height and width of an image where the model takes any."""
SAMPLES, FRAMES, SECONDS = 16_000, 100, 10
"""Of sound: samples and frames of a second, and seconds."""
VIDEO_FRAMES = 8
LONGEST = ("max_position_embeddings", "max_target_positions", "n_positions", "max_seq_len")
IMAGE_TOKENS = ("image_token_id", "image_token_index", "media_token_id", "im_patch_token_id", "video_token_index")
AUDIO_TOKENS = ("audio_token_id", "audio_token_index")
MEL = ("num_mel_bins", "feature_size", "input_feat_per_channel", "input_feat_size", "feature_projection_input_dim",
       "input_dim", "num_mel_filters", "n_mels", "input_size")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSizes:
    """What inputs are made for.

    Attributes:
        accepted: names of forward's arguments.
        needed: those without a default.
        main: the argument that the class calls its main one.
        tokens: per sequence; with those that stand for an image or sound.
        batch: sequences, images or recordings.
        image: height and width of images; None is the model's own.
    """

    config: Any
    accepted: Collection[str]
    needed: Collection[str]
    main: str
    tokens: int
    batch: int
    image: int | None = None

    def part(self, *names: str) -> Any:
        """Return the configuration of a part, of the first of these names that is there; else the whole."""
        parts = (getattr(self.config, name, None) for name in names)
        return next((part for part in parts if part is not None and not isinstance(part, str | int)), self.config)


def text_of(config: Any) -> Any:
    """Return the configuration of the language model in a configuration, or itself."""
    try:
        return config.get_text_config(decoder=True)
    except (ValueError, AttributeError):
        return config


def positions_of(config: Any) -> int | None:
    """Return the most positions that a configuration names; None where it names none."""
    text = text_of(config)
    named = (getattr(text, name, None) for name in LONGEST)
    return min((limit for limit in named if isinstance(limit, int) and limit > 1), default=None)


def default_tokens(config: Any, decoding: bool) -> int:
    """Return the tokens per sequence: 512, or fewer if there are fewer positions."""
    positions = positions_of(config)
    return DEFAULT_TOKENS if positions is None else min(DEFAULT_TOKENS, positions - decoding)


def ids(sizes: InputSizes, begin: int, end: int) -> torch.Tensor:
    """Return random tokens at some positions; a sequence may have streams of them, one after the other or abreast."""
    vocabulary, family = _vocabulary(text_of(sizes.config)) or _vocabulary(sizes.config) or 2, sizes.config.model_type
    rows = sizes.batch * _of(sizes.config, *STREAMS.get(family, ()), default=1)
    beside = [streams(text_of(sizes.config))] if (streams := SIDE_BY_SIDE.get(family)) else []
    if beside:  # all of them are in the smallest vocabulary
        vocabulary = min(vocabulary, _of(text_of(sizes.config), "codebook_vocab_size", default=vocabulary))
    return torch.randint(0, vocabulary, (rows, end - begin, *beside), device="cpu")


def encoder_ids(sizes: InputSizes, begin: int, end: int) -> torch.Tensor:
    """Return random tokens that an encoder reads: a stream of words, whatever its decoder writes."""
    vocabulary = _vocabulary(sizes.part("encoder_config")) or _vocabulary(text_of(sizes.config)) or 2
    return torch.randint(0, vocabulary, (sizes.batch, end - begin), device="cpu")


def label_ids(sizes: InputSizes) -> torch.Tensor:
    """Return random labels for the tokens of all sequences, of streams abreast for those that the model writes."""
    tokens = ids(sizes, 0, sizes.tokens)
    if tokens.dim() == 2:
        return tokens
    return tokens[..., 0] if sizes.config.model_type in WRITES_WORDS else tokens.transpose(1, 2).flatten(0, 1)


def _vocabulary(config: Any) -> Any:
    return getattr(config, "vocab_size", None)


def positions(sizes: InputSizes, begin: int, end: int) -> dict[str, torch.Tensor]:
    """Return positions where they can be given, so that no model computes them from values."""
    if "position_ids" not in sizes.accepted:
        return {}
    return {"position_ids": torch.arange(begin, end, device="cpu").expand(sizes.batch, end - begin)}


def media(sizes: InputSizes) -> dict[str, Any]:
    """Return images or sound: what the model takes beside tokens, or instead of them."""
    made: dict[str, Any] = {}
    for name, make in MAKERS.items():
        wanted = name in sizes.accepted and (name in ALWAYS or name == sizes.main or name in sizes.needed)
        if wanted and (name in sizes.needed or not INSTEAD.get(name, set()) & made.keys()):
            made |= {} if _left_out(sizes.config, name) else make(sizes)
    return made | companions(sizes, made)


def _left_out(config: Any, name: str) -> bool:
    """True if a configuration leaves out the part that reads an input."""
    part = {"pixel_values": "vision_config", "input_features": "audio_config"}.get(name, "")
    return getattr(config, part, config) is None


def placeholders(sizes: InputSizes, tokens: torch.Tensor, counts: Mapping[str, int]) -> torch.Tensor:
    """Return tokens of which the first stand for an image, or sound; the others are none of these."""
    marks = {name: mark_of(sizes.config, IMAGE_TOKENS if name == "image" else AUDIO_TOKENS) for name in counts}
    known = [mark for mark in marks.values() if mark is not None]
    tokens = tokens.clone()
    for mark in known:
        tokens[tokens == mark] = 0 if mark else 1
    begin = 0
    for name, count in counts.items():
        place = marks[name]
        if place is not None:
            tokens[:, begin : begin + count] = place
            begin += count
    return tokens


def mark_of(config: Any, names: Collection[str]) -> int | None:
    """Return the token that stands for a piece of an image or of sound."""
    whole = (config, text_of(config), getattr(config, "vlm_config", None))
    found = (getattr(one, name, None) for one in whole for name in names)
    return next((mark for mark in found if isinstance(mark, int)), None)


def _square(size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        size = [size.get("height", size.get("longest_edge")), size.get("width", size.get("longest_edge"))]
    if isinstance(size, list | tuple):
        height, width = (size[0], size[-1])
        return int(height), int(width)
    return int(size), int(size)


def _of(part: Any, *names: str, default: int) -> int:
    found = (getattr(part, name, None) for name in names)
    value = next((value for value in found if value is not None and not isinstance(value, str)), default)
    return int(value[0] if isinstance(value, list | tuple) else value)


def _image_size(sizes: InputSizes, part: Any) -> tuple[int, int]:
    if sizes.image is not None:
        return sizes.image, sizes.image
    ratios = getattr(part, "scaled_images_ratios", None)
    if ratios:  # of which the smallest has the size of a patch
        return _square(round(part.patch_size / min(ratios)))
    names = ("image_size", "img_size", "size", "input_size")
    others = (part, sizes.config, getattr(sizes.config, "prompt_encoder_config", None))
    found = (getattr(one, name, None) for one in others for name in names)
    return _square(next((size for size in found if size is not None and not isinstance(size, str)), DEFAULT_IMAGE))


def _vision(sizes: InputSizes) -> Any:
    whole = getattr(sizes.config, "vlm_config", None)
    if whole is not None:
        return _vision(replace(sizes, config=whole))
    part = sizes.part(
        "vision_config", "image_config", "encoder", "vision", "backbone_config", "image_encoder", "vision_tower_config"
    )
    return replace(sizes, config=part).part("vision_config")


def _pixels(sizes: InputSizes) -> dict[str, Any]:
    """Images; patches of them with a grid, crops of them, or frames of a video, as the arguments tell."""
    part = _vision(sizes)
    channels = _of(part, "num_channels", "in_channels", "in_chans", "image_channels", default=3)
    height, width = _image_size(sizes, part)
    if {"image_grid_thw", "grid_thw"} & set(sizes.accepted):
        return _patches(sizes, part, channels)
    if FLAT & set(sizes.accepted) or sizes.config.model_type == "fuyu":
        return _flat(sizes, part, channels, height)
    if "target_sizes" in sizes.accepted:
        return _strip(sizes, part, channels, height)
    if "aspect_ratio_ids" in sizes.accepted:
        return _tiles(sizes, part, (channels, height, width))
    shape: tuple[int, ...] = (sizes.batch, channels, height, width)
    family = sizes.config.model_type
    if family in CROPPED:
        shape = (sizes.batch, CROPPED[family], *shape[1:])
    elif _of(part, "num_frames", default=0) and family not in ("git", "llava_next_video"):
        shape = (sizes.batch, _of(part, "num_frames", default=VIDEO_FRAMES), *shape[1:])
    made: dict[str, Any] = {"pixel_values": torch.randn(shape)}
    if "image_sizes" in sizes.accepted and family not in ("llava", "internvl", "aya_vision"):
        made["image_sizes"] = torch.tensor([[height, width]] * sizes.batch, device="cpu")
    return made


def _tiles(sizes: InputSizes, part: Any, image: tuple[int, int, int]) -> dict[str, Any]:
    """One image of a single tile, and which tiles each token sees."""
    tiles = _of(part, "max_num_tiles", default=4)
    ones = torch.ones(sizes.batch, 1, tiles, dtype=torch.int64, device="cpu")
    return {
        "pixel_values": torch.randn(sizes.batch, 1, tiles, *image),
        "aspect_ratio_ids": ones[..., 0],
        "aspect_ratio_mask": ones,
        "cross_attention_mask": ones[:, None].expand(sizes.batch, sizes.tokens, 1, tiles),
    }


def _flat(sizes: InputSizes, part: Any, channels: int, height: int) -> dict[str, Any]:
    """Patches of each image, row by row, with their places or their number in height and width."""
    patch, pooled = _of(part, "patch_size", default=16), _of(part, "pooling_kernel_size", default=1)
    native = _of(part, "num_patches", default=0)
    side = round(native**0.5) if native and sizes.image is None else max(1, height // patch // pooled) * pooled
    made: dict[str, Any] = {"pixel_values": torch.randn(sizes.batch, side * side, channels * patch * patch)}
    if "spatial_shapes" in sizes.accepted:
        made["spatial_shapes"] = torch.tensor([[side, side]] * sizes.batch, device="cpu")
        made["pixel_attention_mask"] = torch.ones(sizes.batch, side * side, dtype=torch.int64, device="cpu")
    places = torch.cartesian_prod(*[torch.arange(side, device="cpu")] * 2).expand(sizes.batch, -1, -1)
    return made | {name: places for name in ("image_position_ids", "pixel_position_ids") if name in sizes.accepted}


def _strip(sizes: InputSizes, part: Any, channels: int, height: int) -> dict[str, Any]:
    """Patches of all images in one row, and how many each image has in height and width."""
    patch = _of(part, "patch_size", default=14)
    side = max(4, height // patch // 4 * 4)
    grid = torch.tensor([[side, side]] * sizes.batch, device="cpu")
    return {"pixel_values": torch.randn(1, channels, patch, patch * side * side * sizes.batch), "target_sizes": grid}


def _patches(sizes: InputSizes, part: Any, channels: int) -> dict[str, Any]:
    """Patches of images, row by row, and how many there are in time, height and width."""
    patch, merge = _of(part, "patch_size", default=14), _of(part, "spatial_merge_size", "merge_size", default=2)
    step = patch * merge
    side = max(1, (sizes.image or DEFAULT_IMAGE) // step) * merge
    width = channels * _of(part, "temporal_patch_size", "patch_temporal", default=1) * patch * patch
    grid = torch.tensor([[1, side, side]] * sizes.batch, device="cpu")
    name = "image_grid_thw" if "image_grid_thw" in sizes.accepted else "grid_thw"
    values = torch.randn(_shaped(sizes, (channels, patch, merge), (side * side, width)))
    flat = "pixel_values" if "pixel_values" in sizes.accepted else "hidden_states"
    return {flat: values, name: grid}


def _shaped(sizes: InputSizes, parts: tuple[int, int, int], flat: tuple[int, int]) -> tuple[int, ...]:
    """The shape of all patches, as a family has it."""
    (channels, patch, merge), (count, width), family = parts, flat, sizes.config.model_type
    if family == "colqwen2":
        return sizes.batch, count, width
    if family.startswith("kimi_k25"):
        return sizes.batch * count, channels, patch, patch
    if family.startswith("inkling"):
        return sizes.batch * count // merge**2, merge * patch, merge * patch, channels
    return sizes.batch * count, width


def _features(sizes: InputSizes) -> dict[str, Any]:
    """Spectra of sound: bins by frames where the encoder takes a fixed number of frames, else frames by bins."""
    part = sizes.part("audio_config", "encoder_config", "speech_encoder", "audio_encoder", "encoder")
    fixed = _of(part, "max_source_positions", default=0)
    family = sizes.config.model_type
    if getattr(part, "conv_kernel", None) and "input_values" in sizes.accepted:  # it reads samples
        return {"input_values": torch.randn(sizes.batch, SAMPLES * SECONDS)}
    bins = BINS.get(family) or _of(part, *MEL, default=80) * _of(part, "num_stacked_frames", default=1)
    if family == "clap":
        return {"input_features": torch.randn(sizes.batch, 1, FRAMES * SECONDS + 1, bins)}
    turned = family in TURNED or (_of(part, "num_mel_bins", default=0) and fixed)
    frames = 2 * fixed if fixed and turned else FRAMES * SECONDS
    shape = (sizes.batch, bins, frames) if turned else (sizes.batch, frames, bins)
    if "audio_mel" in sizes.accepted:
        padded = torch.zeros(sizes.batch, frames, dtype=torch.bool, device="cpu")
        return {"audio_mel": torch.randn(shape), "audio_mel_mask": padded}
    masks = {"input_features_mask", "feature_attention_mask"} & set(sizes.accepted)
    kind = torch.bool if family == "gemma3n" else torch.int64
    heard = dict.fromkeys(masks, torch.ones(sizes.batch, frames, dtype=kind, device="cpu"))
    if "feature_attention_mask" in masks and "attention_mask" in sizes.accepted:  # only together
        heard["attention_mask"] = torch.ones(sizes.batch, sizes.tokens, dtype=torch.int64, device="cpu")
    return {"input_features": torch.randn(shape), **heard}


def _values(sizes: InputSizes) -> dict[str, Any]:
    """Samples of sound; a spectrogram where the configuration has bins and a length."""
    bins, length = _of(sizes.config, "num_mel_bins", default=0), _of(sizes.config, "max_length", default=0)
    if bins and length:
        return {"input_values": torch.randn(sizes.batch, length, bins)}
    channels = _of(sizes.config, "audio_channels", default=int(sizes.config.model_type in WAVES))
    shape = (sizes.batch, channels, SAMPLES) if channels else (sizes.batch, SAMPLES * SECONDS)
    return {"input_values": torch.randn(shape)}


def _flattened(sizes: InputSizes) -> dict[str, Any]:
    part = _vision(sizes)
    width = _of(part, "patch_embed_hidden_size", default=768)
    return {"flattened_patches": torch.rand(sizes.batch, _of(part, "seq_len", default=4096), 2 + width)}


def _boxes(sizes: InputSizes) -> dict[str, Any]:
    return {"bbox": torch.tensor([1, 2, 3, 4], device="cpu").expand(sizes.batch, sizes.tokens, 4)}


def _past(sizes: InputSizes) -> dict[str, Any]:
    """A series of numbers up to now."""
    channels = _of(sizes.config, "num_input_channels", "input_size", default=1)
    length = _of(sizes.config, "context_length", "prediction_length", default=64)
    lags = max(getattr(sizes.config, "lags_sequence", None) or [0])
    if sizes.config.model_type.startswith("timesfm"):
        return {"past_values": [torch.randn(length) for _ in range(sizes.batch)]}
    shape = (sizes.batch, length + lags) if channels == 1 and lags else (sizes.batch, length, channels)
    made = {"past_values": torch.randn(shape)}
    if "past_time_features" in sizes.needed:
        made["past_time_features"] = torch.randn(*shape[:2], _of(sizes.config, "num_time_features", default=0))
        made["past_observed_mask"] = torch.ones(shape)
    return made


Maker = Callable[[InputSizes], dict[str, Any]]
MAKERS: Mapping[str, Maker] = {
    "flattened_patches": _flattened,
    "pixel_values": _pixels,
    "pixel_values_videos": lambda s: {"pixel_values_videos": _video(s)},
    "hidden_states": lambda s: _patches(s, s.config, _of(s.config, "in_channels", "num_channels", default=3)),
    "input_features": _features,
    "audio_mel": _features,
    "input_values": _values,
    "bbox": _boxes,
    "past_values": _past,
}
ALWAYS = ("pixel_values", "input_features", "bbox")
"""Inputs that are given wherever they can be."""
INSTEAD: Mapping[str, set[str]] = {
    "pixel_values": {"flattened_patches"},
    "pixel_values_videos": {"pixel_values"},
    "hidden_states": {"pixel_values"},
    "input_values": {"input_features"},
}
"""Inputs that others stand for."""
CROPPED: Mapping[str, int] = {
    **dict.fromkeys(("idefics", "idefics2", "idefics3", "smolvlm", "colmodernvbert", "modernvbert"), 1),
    **dict.fromkeys(("granite_docling", "ultravbert"), 1),
    **dict.fromkeys(("superglue", "lightglue", "efficientloftr"), 2),
    **dict.fromkeys(("llava_next", "llava_next_video", "llava_onevision", "granite4_vision"), 3),
    "instructblipvideo": 4,
}
"""Families whose images come as crops or in pairs, and how many there are."""
TURNED = frozenset(("glmasr", "glmasr_encoder", "voxtral_realtime", "voxtral_realtime_encoder", "clvp"))
"""Families of sound of any length that take bins before frames."""
WAVES = frozenset(["dac", "mimi", "xcodec", "xcodec2", "neucodec", "wavtokenizer", "vibevoice_acoustic_tokenizer"]) | {
    "vibevoice_acoustic_tokenizer_encoder"
}
"""Codecs of sound, whose samples have channels."""
BINS: Mapping[str, int] = {
    **dict.fromkeys(("gemma4_audio", "gemma3n_audio"), 128),
    **dict.fromkeys(("nemo_speechlm", "nemotron3_5_transcribe_audio"), 128),
    **dict.fromkeys(("neucodec", "xcodec2"), 160),
    **dict.fromkeys(("granite_speech5_ctc", "granite_speech5_encoder"), 320),
}
"""Bins of sound where the configuration does not tell them."""
FLAT = {"spatial_shapes", "image_position_ids", "pixel_position_ids"}
"""Arguments of models that take the patches of an image."""
STREAMS: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("musicgen_decoder", "musicgen_melody_decoder"), ("num_codebooks",)
)
"""Families whose decoder writes several streams of tokens, and the field that tells how many."""
SIDE_BY_SIDE: Mapping[str, Callable[[Any], int]] = {
    "dia": lambda decoder: int(decoder.num_channels),
    "kyutai_speech_to_text": lambda decoder: int(decoder.num_codebooks) + 1,  # words, and what is heard meanwhile
}
"""Families whose decoder reads several tokens at each position, and how many."""
WRITES_WORDS = frozenset(("kyutai_speech_to_text",))
"""Those of them that write the first stream alone."""


def _video(sizes: InputSizes) -> torch.Tensor:
    part = _vision(sizes)
    height, width = _image_size(sizes, part)
    frames = _of(part, "num_frames", "frames_per_clip", default=VIDEO_FRAMES)
    return torch.randn(sizes.batch, frames, _of(part, "num_channels", default=3), height, width)
