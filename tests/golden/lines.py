"""conv1d and pool1d, for layers.py: how a random net writes them, shapes, parameters, and what PyTorch
computes."""

import math

from random_numbers import divisors
from texts import parse, whole, word
from torch_library import F, torch


def line_window(config, s, pool):
    """Kernel, stride, dilation and padding of a window over lines."""
    if word(config, "global", "") == "true":
        return s[-2], 1, 1, [0, 0]
    kernel = whole(config, "kernel")
    padding = [int(p) for p in config.get("padding", ["0"])]
    return (kernel, whole(config, "stride", kernel if pool else 1), whole(config, "dilation", 1),
            [padding[0], padding[-1]])


def line_shape(config, s, channels, pool):
    kernel, stride, dilation, padding = line_window(config, s, pool)
    return s[:-2] + [(s[-2] + sum(padding) - dilation * (kernel - 1) - 1) // stride + 1, channels]


def write_line_window(net, s, most_padding, dilated):
    between = net.numbers.between
    kernel, stride, dilation = between(1, 4), between(1, 3), between(1, 2) if dilated else 1
    padding = [between(0, most_padding(kernel)) for _ in range(2)]
    if s[-2] + sum(padding) < dilation * (kernel - 1) + 1:
        return None
    fields = f"kernel: {kernel} stride: {stride} "
    fields += f"padding: {padding[0] if padding[0] == padding[1] else padding} " if any(padding) else ""
    return fields + (f"dilation: {dilation} " if dilation > 1 else "")


def write_conv1d(net, x, s):
    fields = write_line_window(net, s, lambda kernel: 2, dilated=True)
    if fields is None:
        return None
    groups = net.numbers.pick(divisors(s[-1]))
    filters = groups * net.numbers.between(1, 4)
    fields += f"filters: {filters} " + (f"groups: {groups} " if groups > 1 else "")
    return fields + net.trained([filters, s[-1] // groups, whole(parse(fields), "kernel")])


def write_pool1d(net, x, s):
    kind = net.numbers.pick(["MAX", "AVERAGE"])
    if net.numbers.chance(20):
        return f"global: true kind: {kind}"
    fields = write_line_window(net, s, lambda kernel: kernel - 1, dilated=False)
    return fields and fields + f"kind: {kind}"


def over_lines(x, function):
    """Of [..., L, C], by a function of [n, C, L]."""
    y = function(x.flatten(0, -3).transpose(1, 2)).transpose(1, 2)
    return y.unflatten(0, x.shape[:-2])


def conv1d(l, x, w, when):
    _, stride, dilation, padding = line_window(l.config, l.input_shapes[0], False)
    return over_lines(x, lambda x: F.conv1d(F.pad(x, padding), w["weight"], w.get("bias"), stride, 0,
                                            dilation, whole(l.config, "groups", 1)))


def pool1d(l, x, w, when):
    kernel, stride, _, padding = line_window(l.config, l.input_shapes[0], True)
    pad = lambda x, value: F.pad(x, padding, value=value)
    if word(l.config, "kind", "MAX") == "MAX":
        return over_lines(x, lambda x: F.max_pool1d(pad(x, -math.inf), kernel, stride))
    return over_lines(x, lambda x: F.avg_pool1d(pad(x, 0), kernel, stride)
                      / F.avg_pool1d(pad(torch.ones_like(x), 0), kernel, stride))


def conv1d_parameters(config, s):
    filters = whole(config, "filters")
    weight = [filters, s[-1] // whole(config, "groups", 1), whole(config, "kernel")]
    fan_in = math.prod(weight[1:])
    bias = {"bias": ([filters], fan_in)} if word(config, "use_bias", "true") == "true" else {}
    return {"weight": (weight, fan_in), **bias}
