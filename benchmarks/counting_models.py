"""The models of the counting benchmark: kinds that some counter gets wrong, and kinds that all get right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from benchmarks import closed_forms as forms
from benchmarks import counting_modules as own
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of the benchmark.

    Attributes:
        name: unique.
        kind: what it stands for.
        build: makes the module.
        inputs: makes its positional inputs.
        macs: the closed form.
        training: True if forward is counted in train mode.
    """

    name: str
    kind: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    macs: forms.Macs
    training: bool = False


def vision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from torchvision import models

        model: nn.Module = models.get_model(name)
        return model

    return build


def probe() -> nn.Module:
    model = vision("resnet18")().requires_grad_(False)
    model.fc.requires_grad_(True)
    return model


def timm_mixer() -> nn.Module:
    import timm

    model: nn.Module = timm.create_model("mixer_b16_224")
    return model


def transformer(family: str, head: bool, **fields: Any) -> Callable[[], nn.Module]:
    """A model of the transformers library from configuration alone."""

    def build() -> nn.Module:
        import transformers

        config = transformers.AutoConfig.for_model(family, **fields)
        if head:
            return own.Tokens(transformers.AutoModelForCausalLM.from_config(config), use_cache=False)
        return own.Tokens(transformers.AutoModel.from_config(config, add_pooling_layer=False))

    return build


def encoder_layers() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6)


def numbers(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(shape),)


def tokens(count: int, words: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randint(0, words, (1, count)),)


IMAGE = numbers(1, 3, 224, 224)
LLAMA = transformer(
    "llama",
    head=True,
    hidden_size=512,
    intermediate_size=1376,
    num_hidden_layers=8,
    num_attention_heads=8,
    num_key_value_heads=2,
    vocab_size=32000,
)

MODELS = (
    Model(name="resnet18", kind="convolutions", build=vision("resnet18"), inputs=IMAGE, macs=forms.resnet18()),
    Model(
        name="resnet18, frozen trunk", kind="only the head learns", build=probe, inputs=IMAGE, macs=forms.linear_probe()
    ),
    Model(
        name="resnext50_32x4d",
        kind="grouped convolutions",
        build=vision("resnext50_32x4d"),
        inputs=IMAGE,
        macs=forms.resnext50(),
    ),
    Model(
        name="mobilenet_v2",
        kind="depthwise convolutions",
        build=vision("mobilenet_v2"),
        inputs=IMAGE,
        macs=forms.mobilenet_v2(),
    ),
    Model(
        name="convnext_tiny",
        kind="depthwise 7 x 7, linear layers on images",
        build=vision("convnext_tiny"),
        inputs=IMAGE,
        macs=forms.convnext_tiny(),
    ),
    Model(
        name="U-Net",
        kind="transposed convolutions, skips",
        build=lambda: own.UNet(16, 4, 10),
        inputs=numbers(1, 3, 128, 128),
        macs=forms.unet(16, 4, 10, size=128),
    ),
    Model(
        name="DCGAN generator",
        kind="transposed convolutions only",
        build=own.generator,
        inputs=numbers(1, 100, 1, 1),
        macs=forms.generator(),
    ),
    Model(
        name="dilated pyramid",
        kind="dilated convolutions",
        build=lambda: own.DilatedPyramid(64, 64, (6, 12, 18)),
        inputs=numbers(1, 64, 33, 33),
        macs=forms.dilated_pyramid(64, 64, branches=3, size=33),
    ),
    Model(
        name="video CNN", kind="3-D convolutions", build=own.video, inputs=numbers(1, 3, 8, 56, 56), macs=forms.video()
    ),
    Model(
        name="vit_b_16", kind="transformer in eval mode", build=vision("vit_b_16"), inputs=IMAGE, macs=forms.vit_b_16()
    ),
    Model(
        name="vit_b_16, train",
        kind="the same in train mode",
        build=vision("vit_b_16"),
        inputs=IMAGE,
        macs=forms.vit_b_16(),
        training=True,
    ),
    Model(name="swin_t", kind="attention in windows", build=vision("swin_t"), inputs=IMAGE, macs=forms.swin_t()),
    Model(name="mixer_b16_224", kind="MLPs across patches", build=timm_mixer, inputs=IMAGE, macs=forms.mixer()),
    Model(
        name="nn.TransformerEncoder",
        kind="the fast path of eval mode",
        build=encoder_layers,
        inputs=numbers(1, 196, 512),
        macs=forms.encoder(6, 196, 512, 2048),
    ),
    Model(
        name="nn.Transformer",
        kind="cross-attention",
        build=lambda: nn.Transformer(256, 8, 3, 3, 1024, batch_first=True),
        inputs=lambda: (torch.randn(1, 96, 256), torch.randn(1, 64, 256)),
        macs=forms.encoder_decoder(3, source=96, target=64, width=256, inside=1024),
    ),
    Model(
        name="nn.MultiheadAttention",
        kind="one layer of attention",
        build=lambda: own.SelfAttention(512, 8),
        inputs=numbers(1, 512, 512),
        macs=forms.self_attention(512, 512),
    ),
    Model(
        name="GPT-2",
        kind="decoder, head tied to the table",
        build=transformer("gpt2", head=True, n_layer=12, n_embd=768, n_head=12, vocab_size=50257),
        inputs=tokens(256, 50257),
        macs=forms.gpt2(12, 256, 768, words=50257),
    ),
    Model(
        name="Llama",
        kind="decoder, grouped queries, gated MLP",
        build=LLAMA,
        inputs=tokens(256, 32000),
        macs=forms.llama(8, 256, 512, shared=128, inside=1376, words=32000),
    ),
    Model(
        name="BERT",
        kind="encoder of tokens",
        build=transformer("bert", head=False),
        inputs=tokens(128, 30522),
        macs=forms.bert(12, 128, 768),
    ),
    Model(
        name="experts",
        kind="routing that depends on values",
        build=lambda: own.Experts(128, 512, 8),
        inputs=numbers(256, 128),
        macs=forms.experts(256, 128, 512, count=8),
    ),
    Model(
        name="einsum attention",
        kind="einsum and @ on bare parameters",
        build=lambda: own.EinsumAttention(256, 8),
        inputs=numbers(1, 128, 256),
        macs=forms.self_attention(128, 256),
    ),
    Model(
        name="bare parameters",
        kind="functional calls",
        build=lambda: own.BareParameters(64, 1000),
        inputs=numbers(1, 3, 64, 64),
        macs=forms.bare_parameters(64, 1000, size=64),
    ),
    Model(
        name="LSTM",
        kind="two layers",
        build=lambda: own.First(nn.LSTM(256, 256, 2, batch_first=True)),
        inputs=numbers(1, 64, 256),
        macs=forms.recurrent(4, 64, 256, 256, layers=2),
    ),
    Model(
        name="GRU",
        kind="bidirectional, two layers",
        build=lambda: own.First(nn.GRU(128, 256, 2, batch_first=True, bidirectional=True)),
        inputs=numbers(1, 64, 128),
        macs=forms.recurrent(3, 64, 128, 256, layers=2, directions=2),
    ),
    Model(
        name="LSTM cell",
        kind="a loop in Python",
        build=lambda: own.CellLoop(128, 256),
        inputs=numbers(32, 128),
        macs=forms.cell_loop(32, 128, 256),
    ),
    Model(
        name="tied words",
        kind="embedding used again as head",
        build=lambda: own.TiedWords(30000, 256),
        inputs=tokens(8, 30000),
        macs=forms.tied_words(30000, 256),
    ),
    Model(
        name="Conformer convolution",
        kind="depthwise 1-D convolution",
        build=lambda: own.DepthwiseSequence(256, 31),
        inputs=numbers(1, 256, 256),
        macs=forms.depthwise_sequence(256, 256, kernel=31),
    ),
    Model(
        name="recommender",
        kind="products of all pairs of features",
        build=lambda: own.Recommender(13, 8, 16),
        inputs=lambda: (torch.randn(32, 13), torch.randint(0, 1000, (32, 8))),
        macs=forms.recommender(32, 13, 8, 16),
    ),
    Model(
        name="graph convolution",
        kind="dense adjacency matrix",
        build=lambda: own.GraphConvolution(300, 64, 7),
        inputs=lambda: (torch.rand(500, 500), torch.randn(500, 300)),
        macs=forms.graph_convolution(500, 300, 64, 7),
    ),
)
