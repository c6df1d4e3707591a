"""The nets of models/ that Gyre is measured beside, as PyTorch modules.

The same layers in the same places; attention is scaled_dot_product_attention, and the deeper nets
activate in place.  A net with auxiliary classifiers returns all their scores, the main ones first.
"""

import torch
from torch import nn
from torch.nn import functional


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2, 2),
        nn.Conv2d(20, 50, 5), nn.MaxPool2d(2, 2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def alexnet():
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(9216, 4096), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))


def vgg11():
    layers, channels = [], 3
    for group in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for filters in group:
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
            channels = filters
        layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4096, 1000))


def normed(channels, filters, kernel=1, stride=1, groups=1):
    return [nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(filters)]


class Residual(nn.Module):
    def __init__(self, body, shortcut=None, activation=None):
        super().__init__()
        self.body, self.shortcut, self.activation = nn.Sequential(*body), shortcut, activation

    def forward(self, x):
        y = self.body(x)
        y += x if self.shortcut is None else self.shortcut(x)
        return y if self.activation is None else self.activation(y)


def resnet50():
    layers = normed(3, 64, 7, 2) + [nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride, filters = first_stride if block == 0 else 1, 4 * width
            body = (normed(channels, width) + [nn.ReLU(inplace=True)]
                    + normed(width, width, 3, stride) + [nn.ReLU(inplace=True)]
                    + normed(width, filters))
            shortcut = nn.Sequential(*normed(channels, filters, 1, stride)) if block == 0 else None
            layers.append(Residual(body, shortcut, nn.ReLU(inplace=True)))
            channels = filters
    return nn.Sequential(
        *layers, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(2048, 1000))


def mobilenet_v2():
    def active(*arguments, **named):
        return normed(*arguments, **named) + [nn.ReLU6(inplace=True)]

    layers, channels = active(3, 32, 3, 2), 32
    for expansion, filters, repeat, first_stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(repeat):
            stride, width = first_stride if block == 0 else 1, expansion * channels
            body = active(channels, width) if expansion > 1 else []
            body += active(width, width, 3, stride, groups=width) + normed(width, filters)
            layers += [Residual(body)] if stride == 1 and channels == filters else body
            channels = filters
    return nn.Sequential(
        *layers, *active(320, 1280), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(1280, 1000))


def activated(channels, filters, kernel=1, stride=1):
    return nn.Sequential(nn.Conv2d(channels, filters, kernel, stride, kernel // 2),
                         nn.ReLU(inplace=True))


class Inception(nn.Module):
    def __init__(self, channels, one, in3, out3, in5, out5, projected):
        super().__init__()
        self.branches = nn.ModuleList([
            activated(channels, one),
            nn.Sequential(activated(channels, in3), activated(in3, out3, 3)),
            nn.Sequential(activated(channels, in5), activated(in5, out5, 5)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), activated(channels, projected))])

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


class GoogLeNet(nn.Module):
    def __init__(self):
        super().__init__()

        def pool():
            return nn.MaxPool2d(3, 2, ceil_mode=True)

        def norm():
            return nn.LocalResponseNorm(5, 1e-4, 0.75, 1.0)

        def auxiliary(channels):
            return nn.Sequential(
                nn.AvgPool2d(5, 3), activated(channels, 128), nn.Flatten(), nn.Linear(2048, 1024),
                nn.ReLU(inplace=True), nn.Dropout(0.7), nn.Linear(1024, 1000))

        self.to_4a = nn.Sequential(
            activated(3, 64, 7, 2), pool(), norm(), activated(64, 64), activated(64, 192, 3), norm(),
            pool(), Inception(192, 64, 96, 128, 16, 32, 32),
            Inception(256, 128, 128, 192, 32, 96, 64), pool(),
            Inception(480, 192, 96, 208, 16, 48, 64))
        self.to_4d = nn.Sequential(
            Inception(512, 160, 112, 224, 24, 64, 64), Inception(512, 128, 128, 256, 24, 64, 64),
            Inception(512, 112, 144, 288, 32, 64, 64))
        self.to_end = nn.Sequential(
            Inception(528, 256, 160, 320, 32, 128, 128), pool(),
            Inception(832, 256, 160, 320, 32, 128, 128), Inception(832, 384, 192, 384, 48, 128, 128),
            nn.AvgPool2d(7), nn.Flatten(), nn.Dropout(0.4), nn.Linear(1024, 1000))
        self.auxiliary_4a, self.auxiliary_4d = auxiliary(512), auxiliary(528)

    def forward(self, x):
        at_4a = self.to_4a(x)
        at_4d = self.to_4d(at_4a)
        return self.to_end(at_4d), self.auxiliary_4a(at_4a), self.auxiliary_4d(at_4d)


class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        n, times, width = x.shape
        parts = self.qkv(self.norm(x)).view(n, times, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(n, times, width))


def think(width):
    return Residual([nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                     nn.Linear(4 * width, width)])


class Gpt(nn.Module):
    def __init__(self, vocabulary=64, width=128, times=128, layers=4, heads=4):
        super().__init__()
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(times, width))
        self.layers = nn.Sequential(
            *[part for _ in range(layers) for part in (Attend(width, heads), think(width))],
            nn.LayerNorm(width))

    def forward(self, text):
        x = self.layers(self.characters(text) + self.positions)
        return functional.linear(x, self.characters.weight)  # the table of the embedding once more


class Lstm(nn.Module):
    """A class for each sequence of x [T, N, C], of its last h."""

    def __init__(self, width, packs=False):
        super().__init__()
        self.lstm, self.classes, self.packs = nn.LSTM(width, width, 2), nn.Linear(width, 10), packs

    def forward(self, x):
        if isinstance(x, torch.Tensor):
            return self.classes(self.lstm(x)[1][0][-1])
        x, lengths = x
        if self.packs:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return self.classes(self.lstm(packed)[1][0][-1])
        y = self.lstm(x)[0]
        return self.classes(y[lengths - 1, torch.arange(len(lengths))])


# Net -> (constructor, shape of a sample, classes; what a sample is: an image; "text", numbers of
# classes, which have a label each; "sequence", numbers along a time; "ragged", those of a length).
NETS = {
    "lenet": (lenet, (1, 28, 28), 10, "image"),
    "mlp": (mlp, (1, 28, 28), 10, "image"),
    "alexnet": (alexnet, (3, 224, 224), 1000, "image"),
    "vgg11": (vgg11, (3, 224, 224), 1000, "image"),
    "resnet50": (resnet50, (3, 224, 224), 1000, "image"),
    "mobilenet_v2": (mobilenet_v2, (3, 224, 224), 1000, "image"),
    "googlenet": (GoogLeNet, (3, 224, 224), 1000, "image"),
    "gpt_small": (Gpt, (128,), 64, "text"),
    "lstm_512": (lambda: Lstm(512), (64, 512), 10, "sequence"),
    "lstm_200": (lambda: Lstm(200), (128, 200), 10, "sequence"),
    "lstm_ragged": (lambda: Lstm(200), (128, 200), 10, "ragged"),
    "lstm_packed": (lambda: Lstm(200, packs=True), (128, 200), 10, "ragged"),
}

# Of an auxiliary loss, as the paper has it.
AUXILIARY_WEIGHT = 0.3


def random_batch(name, batch, device):
    """Samples and labels."""
    _, shape, classes, kind = NETS[name]
    if kind == "text":
        return tuple(torch.randint(classes, (batch, *shape), device=device) for _ in range(2))
    labels = torch.randint(classes, (batch,), device=device)
    if kind == "image":
        return 2 * torch.rand(batch, *shape, device=device) - 1, labels
    times, columns = shape
    x = 2 * torch.rand(times, batch, columns, device=device) - 1
    # As bench_net has them: from an eighth of the longest on.
    lengths = torch.randint(times // 8, times + 1, (batch,))
    return (x, lengths) if kind == "ragged" else x, labels


def loss_of(scores, labels):
    main, *auxiliary = scores if isinstance(scores, tuple) else (scores,)
    loss = functional.cross_entropy(main.flatten(0, -2), labels.flatten())
    for other in auxiliary:
        loss = loss + AUXILIARY_WEIGHT * functional.cross_entropy(other, labels)
    return loss
