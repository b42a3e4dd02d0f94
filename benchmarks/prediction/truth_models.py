"""Models by whose times predictions are judged: none of them was run, or looked at, before constants were chosen."""

from __future__ import annotations

from itertools import chain, zip_longest

TORCHVISION = (
    *("resnet34", "mobilenet_v2", "efficientnet_v2_s", "vit_b_32", "convnext_small", "resnet101", "swin_v2_t"),
    *("densenet169", "regnet_x_8gf", "vgg11_bn", "mnasnet0_5", "wide_resnet50_2", "swin_s", "efficientnet_b2"),
    *("squeezenet1_1", "mobilenet_v3_small", "resnext101_32x8d", "vit_l_16", "alexnet", "shufflenet_v2_x0_5"),
)
TIMM = (
    *("deit3_small_patch16_224", "resnetv2_50", "mobilenetv4_conv_medium", "eva02_small_patch14_224", "seresnet50"),
    *("mixer_b16_224", "convnextv2_tiny", "repvgg_a2", "hrnet_w18", "poolformer_s12", "nfnet_l0", "levit_256"),
    *("inception_resnet_v2", "ghostnet_100", "coatnet_0_rw_224", "res2net50_26w_4s", "xcit_small_12_p16_224"),
    *("dpn68b", "davit_tiny", "cspdarknet53", "mobilevit_s", "gmlp_s16_224", "caformer_s18", "xception41"),
    *("pvt_v2_b2", "rexnet_100"),
)  # fmt: skip
MODELS = tuple(
    name
    for name in chain.from_iterable(zip_longest(TORCHVISION, (f"timm:{name}" for name in TIMM)))
    if name is not None
)
"""In turn torchvision's and timm's, so that a run that is cut off has both."""
BATCHES = (1, 32, 256)
TRAINING_BATCH = 64
AGAIN = ("resnet50", "vit_b_16", "mobilenet_v3_large")
"""Measured in every session, so that sessions can be compared."""
DECODERS = ("llama-3.2-1b", "qwen2.5-0.5b", "gemma-3-1b")
FITTED = (
    *("resnet50", "vit_b_16", "densenet121", "vgg16", "mobilenet_v3_large", "convnext_tiny", "regnet_y_3_2gf"),
    *("swin_t", "efficientnet_b0", "googlenet", "resnext50_32x4d", "shufflenet_v2_x1_0", "resnet18", "mnasnet1_0"),
    *("swin_v2_s", "maxvit_t", "inception_v3"),
    *(
        f"timm:{name}"
        for name in (
            *("cait_xxs24_224", "crossvit_9_240", "twins_svt_small", "pit_s_224", "visformer_small", "resmlp_12_224"),
            *("efficientformer_l1", "edgenext_small", "fastvit_t8", "skresnet18", "selecsls42b", "dla34"),
            *("ese_vovnet19b_dw", "hardcorenas_a", "tinynet_a", "mixnet_s", "convmixer_768_32", "focalnet_tiny_srf"),
            *("inception_next_tiny", "mvitv2_tiny", "resnest14d", "lambda_resnet26t", "tresnet_m", "gcresnext26ts"),
        )
    ),
)
"""Models that constants of the host are read off: none of those by which predictions are judged."""
