"""Train ResNet-18 on a folder of images as PyTorch's ImageNet example does. Three lines, marked, measure it.

The folder is made first, of random images, so that nothing has to be downloaded. The table is printed, and the records
go to out/imagenet_region.jsonl.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision.transforms import v2

import rooflens as rl  # rooflens 1/3

CLASSES, IMAGES_PER_CLASS = 4, 26
BATCH, WORKERS, CROP = 8, 2, 64
RECORDS = Path("out") / "imagenet_region.jsonl"


def main() -> list[float]:
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torchvision.models.resnet18(num_classes=CLASSES).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder))
        crop = v2.Compose([v2.RandomResizedCrop(CROP), v2.RandomHorizontalFlip(), v2.PILToTensor()])
        scale = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)])
        dataset = torchvision.datasets.ImageFolder(folder, v2.Compose([crop, scale]))
        loader = DataLoader(
            dataset, batch_size=BATCH, shuffle=True, num_workers=WORKERS, pin_memory=device.type == "cuda"
        )
        return train(loader, model, criterion, optimizer, device)


def train(
    loader: Iterable[tuple[torch.Tensor, torch.Tensor]],
    model: nn.Module,
    criterion: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> list[float]:
    """Train one epoch and return the loss of every iteration."""
    losses = []
    model.train()
    region = rl.region("train step", trace=model, skip=2, iterations=10, save=RECORDS, show=True)  # rooflens 2/3
    loader = region.over(loader)  # rooflens 3/3
    for images, target in loader:
        output = model(images.to(device, non_blocking=True))
        loss = criterion(output, target.to(device, non_blocking=True))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def write_images(folder: Path) -> None:
    """Write random images, one folder per class, as ImageFolder reads them."""
    for label in range(CLASSES):
        home = folder / f"class{label}"
        home.mkdir()
        for number in range(IMAGES_PER_CLASS):
            pixels = torch.randint(0, 256, (160, 200, 3), dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(home / f"{number}.jpg")


if __name__ == "__main__":
    print(f"mean loss {torch.tensor(main()).mean():.3f}")
