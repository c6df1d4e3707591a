"""The judge: trains a Case in PyTorch, in F64, and says what must come out.

What PyTorch lacks stands here, as clipping without an epsilon, and in layers.py.
"""

import dataclasses
import math

import torch

from case import first_weights, layers_of, output_names
from layers import KINDS
from random_numbers import sample_order
from texts import number_of, parse


@dataclasses.dataclass
class Pass:
    train: bool
    seed: int = 0
    step: int = 0
    first: int = 0  # sample's position


def run(layers, inputs, weights, when):
    """The weighted loss, and each loss and metric by name."""
    values, total, metrics = dict(inputs), 0, {}
    for layer in layers:
        if layer.phase == ("TEST" if when.train else "TRAIN"):
            continue
        own = {state: weights[name] for state, (name, *_) in layer.parameters.items()}
        own |= {name.split(".")[1]: weights[name] for name in layer.buffers}
        kind = KINDS[layer.kind]
        y = kind.compute(layer, *(values[name] for name in layer.inputs), w=own, when=when)
        values.update(zip(output_names(layer), y if isinstance(y, tuple) else [y]))
        if layer.shapes == [[]]:
            metrics[layer.name] = y.item()
        if kind.loss:
            total = total + number_of(layer.config, "loss_weight", 1) * y
    return total, metrics


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


def judge(case, nudge=0):
    """What training must give: {"steps": [metrics], "tests": [metrics], "gradients", "weights"}.

    The gradients are those of the first step, before clipping and decay.  The first weights are moved
    by up to `nudge` of their value.
    """
    layers, trainer = layers_of(parse(case.net)), parse(case.trainer)
    batch, steps = int(trainer["batch"][0]), int(trainer["steps"][0])
    seed, every = int(trainer["seed"][0]), int(trainer["evaluate_every"][0])
    real = {i["name"][0] for i in parse(case.net)["input"] if i.get("type") != ["LABEL"]}
    tensors = lambda samples: {
        name: (torch.tensor(list(values)).double().div(255).sub(0.25).div(0.5) if name in real else
               torch.tensor(list(values))).reshape(shape)
        for name, (shape, values) in samples.items()}
    train, test = tensors(case.train), tensors(case.test)
    order = sample_order(next(iter(case.train.values()))[0][0], seed, batch * steps)
    numbers = torch.Generator().manual_seed(0)
    weights = {n: torch.tensor(v, dtype=torch.float64).reshape(s) *
                  (1 + nudge * torch.rand(s, generator=numbers, dtype=torch.float64))
               for n, (s, v) in first_weights(case.net).items()}
    buffers = {n: torch.full(s, v, dtype=torch.float64)
               for layer in layers for n, (s, v) in layer.buffers.items()}
    optimizer = new_optimizer(trainer["optimizer"][0], layers, weights)
    result = {"steps": [], "tests": []}
    for step in range(steps):
        at = order[step * batch:(step + 1) * batch]
        loss, metrics = run(layers, {n: v[at] for n, v in train.items()}, weights | buffers,
                            Pass(True, seed, step, step * batch))
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
                loss, metrics = run(layers, test, weights | buffers, Pass(False))
            result["tests"].append({"loss": float(loss), **metrics})
    result["weights"] = {n: w.detach().flatten().tolist() for n, w in (weights | buffers).items()}
    return result
