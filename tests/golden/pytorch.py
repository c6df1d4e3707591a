"""The judge: trains a Case in PyTorch, in F64, and says what must come out.

What PyTorch lacks stands here: Philox (Salmon et al. 2011) for the order of samples and dropout's
masks, an average that leaves padding out where it is not symmetric, clipping without an epsilon,
and a batch whose labels are all ignored, whose loss is 0.
"""

import math

import torch
import torch.nn.functional as F

from case import LOSSES, SCALARS, first_weights, layers_of, numbers_of, parse

_M32 = 0xFFFFFFFF


def philox(key, high, low):
    k0, k1 = key & _M32, key >> 32
    c0, c1, c2, c3 = low & _M32, low >> 32, high & _M32, high >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & _M32, p0 >> 32 ^ c3 ^ k1, p0 & _M32
        k0, k1 = k0 + 0x9E3779B9 & _M32, k1 + 0xBB67AE85 & _M32
    return c0, c1, c2, c3


def random_key(seed, purpose):
    code = 0xCBF29CE484222325
    for byte in purpose.encode():
        code = (code ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    words = philox(seed, len(purpose), code)
    # The mixed key is words 1 and 0; see RandomKey in engine/runtime/random.h.
    return words[1] << 32 | words[0]


def sample_order(size, seed, count):
    key, order = random_key(seed, "sample order"), []
    for epoch in range(-(-count // size)):
        permutation = list(range(size))
        for i in range(size - 1, 0, -1):
            words = philox(key, epoch, i)
            j = (words[0] << 32 | words[1]) * (i + 1) >> 64
            permutation[i], permutation[j] = permutation[j], permutation[i]
        order += permutation
    return order[:count]


def dropout_mask(x, rate, key, step, first):
    size = x[0].numel()
    groups, below = -(-size // 4), int(rate * 2**32)
    mask = [w >= below for sample in range(first, first + len(x))
            for w in [w for g in range(groups) for w in philox(key, step, sample * groups + g)][:size]]
    return torch.tensor(mask).double().reshape(x.shape) / (1 - rate)


def window(config, x, pool):
    kernel = numbers_of(config, "kernel", [])
    stride = numbers_of(config, "stride", kernel if pool else [1])
    top, bottom, left, right = numbers_of(config, "padding", [0], 4)
    pad = lambda t, value: F.pad(t, (left, right, top, bottom), value=value)
    return kernel, stride, pad, x.permute(0, 3, 1, 2)


def number_of(config, field, default):
    return float(config.get(field, [default])[0])


def apply(layer, inputs, weights, train, key, step, first):
    config, x = layer.config, inputs[0]
    weight, bias = (weights.get(f"{layer.name}.{s}") for s in ("weight", "bias"))
    if layer.kind == "conv2d":
        _, stride, pad, x = window(config, x, pool=False)
        y = F.conv2d(pad(x, 0), weight, bias, stride, 0, numbers_of(config, "dilation", [1]),
                     int(config.get("groups", ["1"])[0]))
        return y.permute(0, 2, 3, 1)
    if layer.kind == "pool2d":
        if config.get("global") == ["true"]:
            return (x.amax((1, 2), True) if config.get("kind", ["MAX"])[0] == "MAX" else
                    x.mean((1, 2), True))
        kernel, stride, pad, x = window(config, x, pool=True)
        if config.get("kind", ["MAX"])[0] == "MAX":
            y = F.max_pool2d(pad(x, -math.inf), kernel, stride)
        else:
            count = F.avg_pool2d(pad(torch.ones_like(x), 0), kernel, stride)
            y = F.avg_pool2d(pad(x, 0), kernel, stride) / count
        return y.permute(0, 2, 3, 1)
    if layer.kind == "dense":
        return F.linear(x, weight, bias)
    if layer.kind == "relu":
        return F.leaky_relu(x, number_of(config, "negative_slope", 0))
    if layer.kind == "gelu":
        return F.gelu(x, approximate=config.get("approximate", ["NONE"])[0].lower())
    if layer.kind in ("sigmoid", "tanh", "silu"):
        return getattr(F, layer.kind)(x)
    if layer.kind == "softmax":
        return F.softmax(x, -1)
    if layer.kind in ("add", "multiply"):
        y = x
        for other in inputs[1:]:
            y = y + other if layer.kind == "add" else y * other
        return y
    if layer.kind == "layer_norm":
        return F.layer_norm(x, x.shape[-1:], weights[layer.name + ".scale"], bias,
                            number_of(config, "epsilon", 1e-5))
    if layer.kind == "lrn":
        numbers = [number_of(config, f, d) for f, d in (("alpha", 1e-4), ("beta", 0.75), ("k", 1))]
        rows = x.reshape(-1, x.shape[-1], 1)
        return F.local_response_norm(rows, int(number_of(config, "size", 5)), *numbers).reshape(x.shape)
    if layer.kind == "dropout":
        rate = float(config.get("rate", ["0.5"])[0])
        if not train or rate == 0:
            return x
        # Elements count in the order N, H, W, C, and so does reshape.
        return x * dropout_mask(x.contiguous(), rate, random_key(key, layer.name), step, first)
    assert layer.kind == "flatten", layer.kind
    return x.flatten(1)


def measure(layer, scores, labels):
    if layer.kind == "mean_squared_error":
        return F.mse_loss(scores, labels)
    if layer.kind == "sigmoid_cross_entropy":
        return F.binary_cross_entropy_with_logits(scores, labels)
    ignored = layer.config.get("ignore_label")
    counts = labels != int(ignored[0]) if ignored else torch.ones_like(labels, dtype=torch.bool)
    scores, labels = scores[counts], labels[counts]
    if len(labels) == 0:
        return scores.sum()  # 0, and so is its gradient
    if layer.kind == "softmax_cross_entropy":
        return F.cross_entropy(scores, labels,
                               label_smoothing=number_of(layer.config, "label_smoothing", 0))
    if layer.kind == "hinge":
        return F.multi_margin_loss(scores, labels, p=1 + (layer.config.get("norm") == ["L2"]),
                                   margin=number_of(layer.config, "margin", 1))
    own = scores.gather(1, labels[:, None])
    lower = torch.arange(scores.shape[1]) < labels[:, None]
    above = ((scores > own) | (scores == own) & lower).sum(1)
    return (above < int(layer.config.get("top_k", ["1"])[0])).double().mean()


def run(layers, images, labels, weights, train, seed=0, step=0, first=0):
    """The weighted loss, and each loss and metric by name."""
    values, total, metrics = {"image": images, "label": labels}, 0, {}
    for layer in layers:
        if layer.phase == ("TEST" if train else "TRAIN"):
            continue
        inputs = [values[name] for name in layer.inputs]
        if layer.kind in SCALARS:
            value = measure(layer, *inputs)
            metrics[layer.name] = value.item()
            if layer.kind in LOSSES:
                total = total + number_of(layer.config, "loss_weight", 1) * value
        else:
            values[layer.name] = apply(layer, inputs, weights, train, seed, step, first)
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
    decay, groups = float(config.get("weight_decay", ["0"])[0]), []
    for layer in layers:
        for state in layer.parameters:
            text = layer.config.get(state, [{}])[0]
            groups.append({
                "params": [weights[f"{layer.name}.{state}"]],
                "multiplier": float(text.get("learning_rate_multiplier", ["1"])[0]),
                "weight_decay": decay * float(text.get("decay_multiplier", ["1"])[0])})
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


def judge(case):
    """What training must give: {"steps": [metrics], "tests": [metrics], "gradients", "weights"}.

    The gradients are those of the first step, before clipping and decay.
    """
    layers, trainer = layers_of(parse(case.net)), parse(case.trainer)
    batch, steps = int(trainer["batch"][0]), int(trainer["steps"][0])
    seed, every = int(trainer["seed"][0]), int(trainer["evaluate_every"][0])
    tensors = lambda samples: (
        (torch.frombuffer(bytearray(samples.pixels), dtype=torch.uint8).double() / 255 - 0.25)
        .div(0.5).reshape(samples.shape), torch.tensor(list(samples.labels)))
    images, labels = tensors(case.train)
    test = tensors(case.test)
    order = sample_order(len(labels), seed, batch * steps)
    weights = {n: torch.tensor(v, dtype=torch.float64).reshape(s) for n, (s, v) in first_weights(case.net).items()}
    optimizer = new_optimizer(trainer["optimizer"][0], layers, weights)
    result = {"steps": [], "tests": []}
    for step in range(steps):
        at = order[step * batch:(step + 1) * batch]
        loss, metrics = run(layers, images[at], labels[at], weights, True, seed, step, step * batch)
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
                loss, metrics = run(layers, *test, weights, False)
            result["tests"].append({"loss": float(loss), **metrics})
    result["weights"] = {n: w.detach().flatten().tolist() for n, w in weights.items()}
    return result
