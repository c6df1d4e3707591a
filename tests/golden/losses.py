"""Losses and accuracy, for layers.py: what PyTorch computes."""

import math

from texts import number_of, whole, word
from torch_library import F, torch

_N = "N"  # the samples' extent, as in layers.py


def counted(l, scores, labels):
    """The rows whose labels count, and these."""
    scores, labels = scores.reshape(-1, scores.shape[-1]), labels.flatten()
    if "ignore_label" not in l.config:
        return scores, labels
    counts = labels != whole(l.config, "ignore_label")
    return scores[counts], labels[counts]


def number_counted(l, labels):
    """Of how many targets the loss or metric is a mean, where the data tell; else 1."""
    if "ignore_label" not in l.config:
        return 1
    counts = labels != whole(l.config, "ignore_label")
    if l.kind == "max_hinge":  # of samples
        axis = l.input_shapes[1].index(_N)
        counts = counts.movedim(axis, 0).reshape(counts.shape[axis], -1).any(1)
    return counts.sum().item()


def softmax_cross_entropy(l, scores, labels, w, when):
    scores, labels = counted(l, scores, labels)
    if len(labels) == 0:
        return scores.sum()  # 0, and so is its gradient
    return F.cross_entropy(scores, labels, label_smoothing=number_of(l.config, "label_smoothing", 0))


def hinge(l, scores, labels, w, when):
    scores, labels = counted(l, scores, labels)
    if len(labels) == 0:
        return scores.sum()
    return F.multi_margin_loss(scores, labels, p=1 + (word(l.config, "norm", "L1") == "L2"),
                               margin=number_of(l.config, "margin", 1))


def by_label(l, scores, labels, loss):
    """The mean of weight loss(sign score) over what counts, of one score a label."""
    sign = 2.0 * labels - 1
    weight = torch.where(labels == 1, number_of(l.config, "positive_weight", 1), 1.0)
    return (weight * loss(sign * scores)).mean() if len(labels) else scores.sum()


def of_hinge(l):
    return lambda margin: (number_of(l.config, "margin", 1) - margin).clamp(min=0)


def binary(loss):
    def compute(l, scores, labels, w, when):
        scores, labels = counted(l, scores, labels)
        return by_label(l, scores[:, 0], labels, loss(l))
    return compute


def max_hinge(l, scores, labels, w, when):
    axis = l.input_shapes[1].index(_N)
    scores, labels = (x.movedim(axis, 0).reshape(x.shape[axis], -1) for x in (scores, labels))
    counts = labels != whole(l.config, "ignore_label", -1)
    place = scores.masked_fill(~counts, -math.inf).argmax(1, keepdim=True)
    some = counts.any(1)
    return by_label(l, scores.gather(1, place)[some, 0], labels.gather(1, place)[some, 0], of_hinge(l))


def time_to_event(l, x, t, w, when):
    x, t = x[t >= 0], t[t >= 0]
    log = (t.clamp(max=number_of(l.config, "horizon", 0)) + number_of(l.config, "offset", 0.0001)).log10()
    return F.mse_loss(x, -log) if len(t) else x.sum()


def accuracy(l, scores, labels, w, when):
    scores, labels = counted(l, scores, labels)
    if len(labels) == 0:
        return scores.sum()
    own = scores.gather(1, labels[:, None])
    lower = torch.arange(scores.shape[1]) < labels[:, None]
    above = ((scores > own) | (scores == own) & lower).sum(1)
    return (above < whole(l.config, "top_k", 1)).double().mean()
