"""The judge: trains a Case in PyTorch, in F64, and says what must come out.

What PyTorch lacks stands here, as clipping without an epsilon, and in layers.py.
"""

import dataclasses
import math
import typing

import torch

from case import first_weights, layers_of, output_names
from layers import KINDS
from losses import number_counted
from random_numbers import sample_order
from texts import number_of, parse, whole


@dataclasses.dataclass
class Pass:
    train: bool
    seed: int = 0
    step: int = 0
    first: int = 0  # sample's position
    stored: typing.Callable = lambda x: x  # what becomes of a value where it is kept


class Rounded(torch.autograd.Function):
    """A value in F64, and backward its gradient, moved by up to `unit` of it, then of type `dtype`."""

    @staticmethod
    def forward(context, x, *how):
        context.how = how
        return Rounded.of(x, *how)

    @staticmethod
    def backward(context, gradient):
        return Rounded.of(gradient, *context.how), None, None, None

    @staticmethod
    def of(x, dtype, unit, numbers):
        moves = 2 * torch.rand(x.shape, generator=numbers, dtype=torch.float64) - 1
        return (x * (1 + unit * moves)).to(dtype).double()


def roundings(dtype, unit, seed):
    """For judge's `stored`: where each number that is kept may be another one by a rounding."""
    numbers = torch.Generator().manual_seed(seed)
    return lambda x: Rounded.apply(x, dtype, unit, numbers) if x.is_floating_point() else x


def run(layers, inputs, weights, when):
    """The weighted loss, and by name each loss and metric, and over how many targets it is a mean."""
    values = {n: when.stored(v) for n, v in inputs.items()}
    total, metrics, counts = 0, {}, {}
    for layer in layers:
        if layer.phase == ("TEST" if when.train else "TRAIN"):
            continue
        own = {state: when.stored(weights[name]) for state, (name, *_) in layer.parameters.items()}
        own |= {name.split(".")[1]: weights[name] for name in layer.buffers}
        kind = KINDS[layer.kind]
        y = kind.compute(layer, *(values[name] for name in layer.inputs), w=own, when=when)
        if layer.shapes == [[]]:
            metrics[layer.name], counts[layer.name] = y.item(), number_counted(layer, values[layer.inputs[1]])
        else:
            outputs = y if isinstance(y, tuple) else [y]
            values.update(zip(output_names(layer), map(when.stored, outputs)))
        if kind.loss:
            total = total + number_of(layer.config, "loss_weight", 1) * y
    return total, metrics, counts


def run_batches(layers, inputs, weights, when, batches):
    """The weighted loss and the metrics of the larger batch, which comes in so many parts."""
    runs, size = [], len(next(iter(inputs.values()))) // batches
    for first in range(0, size * batches, size):
        part = {n: v[first:first + size] for n, v in inputs.items()}
        runs.append(run(layers, part, weights, dataclasses.replace(when, first=when.first + first)))

    def mean(values, name):
        counts = [counts[name] for _, _, counts in runs]
        return sum(v * (c / max(1, sum(counts))) for v, c in zip(values, counts))

    metrics = {name: mean([m[name] for _, m, _ in runs], name) for name in runs[0][1]}
    if batches == 1:  # whose losses need not count alike
        return runs[0][0], metrics
    loss = next(layer.name for layer in layers if KINDS[layer.kind].loss)
    return mean([total for total, _, _ in runs], loss), metrics


def learning_rate(config, step, steps):
    base, warmup = float(config["base"][0]), int(config.get("warmup_steps", ["0"])[0])
    if step < warmup:
        return base * (step + 1) / warmup
    step, steps = step - warmup, steps - warmup
    if "step" in config:
        every, gamma = int(config["step"][0]["every"][0]), float(config["step"][0]["gamma"][0])
        return base * gamma ** (step // every)
    if "cosine" in config:
        final = float(config["cosine"][0].get("final", ["0"])[0])
        return final + (base - final) * (1 + math.cos(math.pi * step / steps)) / 2
    return base


def new_optimizer(config, layers, weights):
    decay, groups = number_of(config, "weight_decay", 0), {}
    for layer in layers:
        for state, (name, *_) in layer.parameters.items():
            text = layer.config.get(state, [{}])[0]
            groups[name] = {
                "params": [weights[name]],
                "multiplier": number_of(text, "learning_rate_multiplier", 1),
                "weight_decay": decay * number_of(text, "decay_multiplier", 1)}
    groups = list(groups.values())
    # A parameter that is not trained has no gradient, and so no share in the norm that is clipped.
    for group in groups:
        group["params"][0].requires_grad_(group["multiplier"] != 0)
    for kind, optimizer in ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW):
        if kind in config:
            adam = config[kind][0]
            return optimizer(groups, lr=0, betas=(float(adam["beta1"][0]), float(adam["beta2"][0])),
                             eps=float(adam["epsilon"][0]))
    sgd = config["sgd"][0]
    return torch.optim.SGD(groups, lr=0, momentum=float(sgd.get("momentum", ["0"])[0]),
                           nesterov=sgd.get("nesterov", ["false"])[0] == "true")


def judge(case, stored=lambda x: x):
    """What training must give: {"steps": [metrics], "tests": [metrics], "gradients", "weights"}.

    The gradients are those of the first step, before clipping and decay.  Whatever is kept, a
    value, a gradient, a parameter as layers read it, is as `stored` makes it.
    """
    layers, trainer = layers_of(parse(case.net)), parse(case.trainer)
    batches, steps = whole(trainer, "accumulate", 1), whole(trainer, "steps")
    batch = whole(trainer, "batch") * batches
    seed, every = int(trainer["seed"][0]), int(trainer["evaluate_every"][0])
    real = {i["name"][0] for i in parse(case.net)["input"] if i.get("type") != ["LABEL"]}
    tensors = lambda samples: {
        name: (torch.tensor(list(values)).double().div(255).sub(0.25).div(0.5) if name in real else
               torch.tensor(list(values))).reshape(shape)
        for name, (shape, values) in samples.items()}
    train, test = tensors(case.train), tensors(case.test)
    order = sample_order(next(iter(case.train.values()))[0][0], seed, batch * steps)
    weights = {n: torch.tensor(v, dtype=torch.float64).reshape(s)
               for n, (s, v) in first_weights(case.net).items()}
    buffers = {n: torch.full(s, v, dtype=torch.float64)
               for layer in layers for n, (s, v) in layer.buffers.items()}
    optimizer = new_optimizer(trainer["optimizer"][0], layers, weights)
    result = {"steps": [], "tests": []}
    for step in range(steps):
        at = order[step * batch:(step + 1) * batch]
        loss, metrics = run_batches(layers, {n: v[at] for n, v in train.items()}, weights | buffers,
                                    Pass(True, seed, step, step * batch, stored), batches)
        result["steps"].append({"loss": loss.item(), **metrics})
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
        trained = [w for w in weights.values() if w.requires_grad]
        for weight in trained:  # where nothing but ignored labels was seen
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        if step == 0:
            result["gradients"] = {n: w.grad.flatten().tolist() for n, w in weights.items()
                                   if w.requires_grad}
        if "clip_norm" in trainer["optimizer"][0]:
            norm = math.sqrt(sum((w.grad**2).sum().item() for w in trained))
            clip = float(trainer["optimizer"][0]["clip_norm"][0])
            for weight in trained:
                weight.grad *= min(1, clip / norm) if norm > 0 else 1
        for group in optimizer.param_groups:
            group["lr"] = group["multiplier"] * learning_rate(trainer["learning_rate"][0], step, steps)
        optimizer.step()
        if (step + 1) % every == 0 or step + 1 == steps:
            with torch.no_grad():
                loss, metrics, _ = run(layers, test, weights | buffers, Pass(False, stored=stored))
            result["tests"].append({"loss": float(loss), **metrics})
    result["weights"] = {n: w.detach().flatten().tolist() for n, w in (weights | buffers).items()}
    return result
