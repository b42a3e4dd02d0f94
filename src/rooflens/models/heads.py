"""Heads: what a family of transformers is built for, and with what its output is compared in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from rooflens.models.step import Loss, cross_entropy, sum_of_outputs

Targets = Literal["tokens", "classes", "pairs", "frames", "none"]


@dataclass(frozen=True, slots=True)
class Purpose:
    """A table of transformers that names one class for a family.

    Attributes:
        table: its name there, less prefix and suffix.
        targets: what the loss compares the logits with: a token at each position, a class, the other half of a pair, a
            sequence shorter than the frames (CTC); of none, the loss is the sum of the outputs.
        generates: it has the modes prefill and decode.
    """

    table: str
    targets: Targets
    generates: bool = False


PURPOSES = (
    Purpose("MODEL_FOR_SPEECH_SEQ_2_SEQ", "tokens", generates=True),
    Purpose("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "tokens", generates=True),
    Purpose("MODEL_FOR_IMAGE_TEXT_TO_TEXT", "tokens", generates=True),
    Purpose("MODEL_FOR_MULTIMODAL_LM", "tokens", generates=True),
    Purpose("MODEL_FOR_MASKED_LM", "tokens"),
    Purpose("MODEL_FOR_CAUSAL_LM", "tokens", generates=True),
    Purpose("MODEL_FOR_CTC", "frames"),
    Purpose("MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION", "pairs"),
    Purpose("MODEL_FOR_IMAGE_CLASSIFICATION", "classes"),
    Purpose("MODEL_FOR_VIDEO_CLASSIFICATION", "classes"),
    Purpose("MODEL_FOR_AUDIO_CLASSIFICATION", "classes"),
    *(
        Purpose(f"MODEL_FOR_{name}", "none")
        for name in (
            "OBJECT_DETECTION",
            "UNIVERSAL_SEGMENTATION",
            "INSTANCE_SEGMENTATION",
            "SEMANTIC_SEGMENTATION",
            "DEPTH_ESTIMATION",
            "MASK_GENERATION",
            "ZERO_SHOT_OBJECT_DETECTION",
            "KEYPOINT_DETECTION",
            "KEYPOINT_MATCHING",
            "IMAGE_TO_IMAGE",
            "TEXT_TO_SPECTROGRAM",
            "TEXT_TO_WAVEFORM",
            "TIME_SERIES_PREDICTION",
            "TIME_SERIES_CLASSIFICATION",
            "TEXT_ENCODING",
            "RETRIEVAL",
            "RNNT",
            "TDT",
            "QUESTION_ANSWERING",
            "VISUAL_QUESTION_ANSWERING",
            "TOKEN_CLASSIFICATION",
            "MULTIPLE_CHOICE",
            "PRETRAINING",
        )
    ),
    Purpose("MODEL", "none"),
)
"""In the order in which they are tried: a family with several heads is built for the first."""
BROKEN = ("Llama4ForConditionalGeneration",)
"""Classes of which no call can end: this one reads a field that its language model's output does not have."""
CAUSAL = next(purpose for purpose in PURPOSES if purpose.table == "MODEL_FOR_CAUSAL_LM")


@cache
def families() -> frozenset[str]:
    """The families that can be built from a configuration."""
    return frozenset(family for purpose in PURPOSES for family in _classes(purpose))


def head(config: Any) -> tuple[type[Any], Purpose]:
    """Return the class to build, and its purpose.

    A configuration names its class itself, unless transformers does not have it for this family: the names are looked
    up in its tables only. A decoder made of an encoder's family has the head of a causal language model.
    """
    import transformers

    family, asked = config.model_type, getattr(config, "architectures", None) or ()
    choices = [(name, one) for one in PURPOSES for name in _classes(one).get(family, ()) if name not in BROKEN]
    named = [(name, one) for name, one in choices if name in asked]
    decodes = getattr(config, "is_decoder", False)
    decoders = [(name, one) for name, one in choices if one is CAUSAL and decodes]
    name, purpose = (*named, *decoders, *choices)[0]
    kind: type[Any] = getattr(transformers, name)
    return kind, purpose


def loss_of(purpose: Purpose) -> Loss:
    """Return the loss of a purpose."""
    return {"none": sum_of_outputs, "frames": _ctc, "pairs": _contrast}.get(purpose.targets, _entropy)


def _classes(purpose: Purpose) -> Mapping[str, tuple[str, ...]]:
    from transformers.models.auto import modeling_auto

    table: Mapping[str, Any] = getattr(modeling_auto, f"{purpose.table}_MAPPING_NAMES")
    return {family: (name,) if isinstance(name, str) else tuple(name) for family, name in table.items()}


def _entropy(output: Any, targets: Any) -> torch.Tensor:
    """Return the cross entropy of the logits; without logits, the sum of the outputs."""
    logits = output.get("logits")
    return sum_of_outputs(output, None) if logits is None else cross_entropy(logits, targets)


def _ctc(output: Any, targets: Any) -> torch.Tensor:
    """Return the loss of connectionist temporal classification, of whole sequences."""
    logits = output["logits"]
    if logits.dim() != 3:
        return sum_of_outputs(output, None)
    batch, frames = logits.shape[:2]
    inputs, labels = (frames,) * batch, (targets.shape[1],) * batch
    spoken = logits.log_softmax(-1).transpose(0, 1)
    return torch.nn.functional.ctc_loss(spoken, targets, inputs, labels, zero_infinity=True)


def _contrast(output: Any, targets: Any) -> torch.Tensor:
    """Return the cross entropy of images against texts and of texts against images."""
    of_images, of_texts = output.get("logits_per_image"), output.get("logits_per_text")
    if of_images is None or of_texts is None:
        return sum_of_outputs(output, None)
    return cross_entropy(of_images, targets) + cross_entropy(of_texts, targets)
