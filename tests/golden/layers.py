"""The layers: how a random net writes each, its shapes and parameters, and what PyTorch computes.

A shape is a list with N for the samples.  PyTorch is loaded by the first computation; the tests need
Python alone.  What PyTorch lacks stands here: dropout's masks, an average that leaves padding out
where it is not symmetric, attention's rows that see nothing, and labels that are all ignored, whose
loss is 0.
"""

import dataclasses
import math
import typing

from lines import conv1d, conv1d_parameters, line_shape, pool1d, write_conv1d, write_pool1d
from losses import (accuracy, binary, hinge, max_hinge, of_hinge, softmax_cross_entropy,
                    time_to_event)
from random_numbers import divisors, philox, random_key
from recurrent import recurrent, recurrent_parameters, recurrent_shapes
from texts import number_of, numbers_of, parse, whole, word
from torch_library import F, torch

N = "N"


# Shapes.

def always(shape):
    return True


def never(shape):
    return False


def is_rows(shape):
    return len(shape) > 1 and shape[-1] != N


def is_image(shape):
    return len(shape) == 4 and shape[0] == N


def is_lines(shape):
    return len(shape) > 2 and N in shape[:-2]


def is_sequence(shape):
    return len(shape) == 3 and N in shape[:2]


def sizes(shape):
    return [d for d in shape if d != N]


def replaced(shape, axis, extent):
    return shape[:axis] + [extent] + shape[axis + 1:]


def other_axes(shape):
    return [a for a, d in enumerate(shape) if d != N]


def axis_of(config, shape):
    return whole(config, "axis", -1) % len(shape)


def windows(config, x, pool):
    kernel = numbers_of(config, "kernel", [])
    stride = numbers_of(config, "stride", kernel if pool else [1])
    return kernel, stride, numbers_of(config, "dilation", [1]), numbers_of(config, "padding", [0], 4)


def window_shape(config, x, channels, pool):
    if word(config, "global", "") == "true":
        return [N, 1, 1, channels]
    kernel, stride, dilation, padding = windows(config, x, pool)
    extents = [(x[i + 1] + sum(padding[2 * i:2 * i + 2]) - dilation[i] * (kernel[i] - 1) - 1)
               // stride[i] + 1 for i in range(2)]
    return [N, *extents, channels]


def parts(config, shape):
    """The extents that split gives."""
    extent = shape[axis_of(config, shape)]
    if "parts" in config:
        return [extent // whole(config, "parts")] * whole(config, "parts")
    return [int(s) for s in config["sizes"]]


def ends(config, shape):
    extent = shape[axis_of(config, shape)]
    begin, end = whole(config, "begin"), whole(config, "end", extent)
    return begin + extent * (begin < 0), end + extent * (end < 0)


# What random nets write.  `net` is random_nets.Net, `s` the shape of the value x.

def one_of(*texts):
    return lambda net, x, s: net.numbers.pick(texts)


def write_window(net, s, most_padding, dilated, pool):
    """Kernel, stride and padding (and dilation) that fit; None where none does."""
    between = net.numbers.between
    kernel, stride = ([between(1, most), between(1, most)] for most in (4, 3))
    dilation = [between(1, 2), between(1, 2)] if dilated else [1, 1]
    padding = [between(0, most_padding(kernel)) for _ in range(4)]
    for i in range(2):
        if s[i + 1] + sum(padding[2 * i:2 * i + 2]) < dilation[i] * (kernel[i] - 1) + 1:
            return None
    short = lambda pair: pair[0] if pair[0] == pair[1] else pair
    fields = f"kernel: {short(kernel)} "
    fields += f"stride: {short(stride)} " if stride != (kernel if pool else [1, 1]) else ""
    fields += f"padding: {padding} " if any(padding) else ""
    return fields + (f"dilation: {dilation} " if dilation != [1, 1] else "")


def write_conv2d(net, x, s):
    fields = write_window(net, s, lambda kernel: 2, dilated=True, pool=False)
    if fields is None:
        return None
    groups = net.numbers.pick(divisors(s[3]))
    filters = groups * net.numbers.between(1, 4)
    fields += f"filters: {filters} " + (f"groups: {groups} " if groups > 1 else "")
    kernel = numbers_of(parse(fields), "kernel", [])
    return fields + net.trained([filters, s[3] // groups] + kernel)


def write_pool2d(net, x, s):
    kind = net.numbers.pick(["MAX", "AVERAGE"])
    if net.numbers.chance(20):
        return f"global: true kind: {kind}"
    fields = write_window(net, s, lambda kernel: min(kernel) - 1, dilated=False, pool=True)
    return fields and fields + f"kind: {kind}"


def write_dense(net, x, s):
    outputs = net.outputs_for(s[-1]) or net.numbers.between(1, 9)
    return f"outputs: {outputs} " + net.trained([outputs, s[-1]])


def write_batch_norm(net, x, s):
    fields = net.numbers.pick(["synchronised: true ", "synchronised: true ", ""])
    fields += net.numbers.pick(["", "momentum: 0.5 ", "epsilon: 0.125 ", "momentum: 1 "])
    return fields + net.parameters(scale=s[-1:], bias=s[-1:])


def write_embedding(net, x, s):
    vocabulary, width = net.numbers.between(2, 9), net.numbers.between(1, 6)
    return (f"vocabulary: {vocabulary} width: {width} "
            + net.parameters(weight=[vocabulary, width]))


def write_positional_embedding(net, x, s):
    length = sizes(s)[0] + net.numbers.between(0, 2)
    return f"length: {length} " + net.parameters(weight=[length, s[-1]])


def write_attention(net, x, s):
    time = 1 - s.index(N)
    if s[-1] % 3 == 0 and net.numbers.chance(50):
        fields = f"heads: {net.numbers.pick(divisors(s[-1] // 3))} "
        fields += "causal: true " if net.numbers.chance(50) else ""
        lengths = net.numbers.chance(40)
        return fields, [net.input("lengths", [], s[time] + 1)] if lengths else []
    keys = net.pick_like(x, time)
    others = [keys, net.pick_like(keys)]
    length = net.shapes[keys][time]
    fields = f"heads: {net.numbers.pick(divisors(s[-1]))} "
    if length == s[time] and net.numbers.chance(50):
        fields += "causal: true "
    if net.numbers.chance(40):
        others.append(net.input("lengths", [], length + 1))
    return fields, others


def write_axis(net, s):
    axis = net.numbers.pick(other_axes(s))
    return axis, f"axis: {axis - len(s) * net.numbers.chance(40)} "


def write_concat(net, x, s):
    axis, fields = write_axis(net, s)
    return fields, [net.pick_like(x, axis) for _ in range(net.numbers.between(1, 2))]


def write_slice(net, x, s):
    axis, fields = write_axis(net, s)
    begin = net.numbers.below(s[axis])
    end = net.numbers.between(begin + 1, s[axis])
    if begin > 0:
        fields += f"begin: {begin - s[axis] * net.numbers.chance(40)} "
    if end < s[axis]:
        fields += f"end: {end - s[axis] * net.numbers.chance(40)} "
    return fields


def write_split(net, x, s):
    axis, fields = write_axis(net, s)
    if net.numbers.chance(50):
        return fields + f"parts: {net.numbers.pick([d for d in divisors(s[axis])[:3] if d <= 64])}"
    first = net.numbers.between(1, s[axis])
    left = s[axis] - first
    return fields + f"sizes: {[first] + [left] * (left > 0)}"


def write_reshape(net, x, s):
    left, dims = math.prod(s[1:]), []
    for _ in range(net.numbers.between(0, 2)):
        dims.append(net.numbers.pick(divisors(left)))
        left //= dims[-1]
    dims.append(left)
    if net.numbers.chance(40):
        dims[net.numbers.below(len(dims))] = -1
    return f"dims: {dims}"


def write_transpose(net, x, s):
    axes = list(range(len(s)))
    for i in range(len(s) - 1, 0, -1):
        j = net.numbers.below(i + 1)
        axes[i], axes[j] = axes[j], axes[i]
    return f"axes: {axes}" if s[axes[-1]] != N else None


def is_packed(inputs):
    """Whether attention's query, key and value are one."""
    return len(inputs) < 3


def bounded(net, x):
    """A value of x's shape that training cannot make large."""
    like = net.pick_like(x)
    return like if net.kinds[like] in ("sigmoid", "tanh", "softmax") else net.add("sigmoid", "", like)


# What PyTorch computes.  `l` is the case.Layer, `w` its parameters by state, `when` the Pass.

def relu(config, x):
    y, most = F.leaky_relu(x, number_of(config, "negative_slope", 0)), number_of(config, "max", math.inf)
    return torch.where(y < most, y, most)


def conv2d(l, x, w, when):
    _, stride, dilation, (top, bottom, left, right) = windows(l.config, l.input_shapes[0], False)
    x = F.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom))
    y = F.conv2d(x, w["weight"], w.get("bias"), stride, 0, dilation, whole(l.config, "groups", 1))
    return y.permute(0, 2, 3, 1)


def pool2d(l, x, w, when):
    x = x.permute(0, 3, 1, 2)
    kernel, stride, padding = list(x.shape[2:]), [1, 1], [0] * 4
    if word(l.config, "global", "") != "true":
        kernel, stride, _, padding = windows(l.config, l.input_shapes[0], True)
    pad = lambda t, value: F.pad(t, padding[2:] + padding[:2], value=value)
    if word(l.config, "kind", "MAX") == "MAX":
        y = F.max_pool2d(pad(x, -math.inf), kernel, stride)
    else:
        count = F.avg_pool2d(pad(torch.ones_like(x), 0), kernel, stride)
        y = F.avg_pool2d(pad(x, 0), kernel, stride) / count
    return y.permute(0, 2, 3, 1)


def lrn(l, x, w, when):
    numbers = [number_of(l.config, f, d) for f, d in (("alpha", 1e-4), ("beta", 0.75), ("k", 1))]
    rows = x.reshape(-1, x.shape[-1], 1)
    return F.local_response_norm(rows, whole(l.config, "size", 5), *numbers).reshape(x.shape)


def batch_norm(l, x, w, when):
    y = F.batch_norm(x.reshape(-1, x.shape[-1]), w["running_mean"], w["running_variance"],
                     w["scale"], w["bias"], when.train, number_of(l.config, "momentum", 0.1),
                     number_of(l.config, "epsilon", 1e-5))
    return y.reshape(x.shape)


def dropout(l, x, w, when):
    rate = number_of(l.config, "rate", 0.5)
    if not when.train or rate == 0:
        return x
    samples = x.movedim(l.input_shapes[0].index(N), 0)
    size = samples[0].numel()
    key, groups, below = random_key(when.seed, l.name), -(-size // 4), int(rate * 2**32)
    mask = [bits >= below for n in range(when.first, when.first + len(samples))
            for bits in [b for g in range(groups)
                         for b in philox(key, when.step, n * groups + g)][:size]]
    mask = torch.tensor(mask).double().reshape(samples.shape) / (1 - rate)
    return x * mask.movedim(0, l.input_shapes[0].index(N))


def positional_embedding(l, x, w, when):
    time_first = l.input_shapes[0].index(N) == 1
    table = w["weight"][:x.shape[0 if time_first else 1]]
    return x + (table[:, None] if time_first else table)


def attention(l, *inputs, w, when):
    query, key, value = inputs[0].chunk(3, -1) if is_packed(inputs) else inputs[:3]
    lengths = inputs[-1:] if len(inputs) % 2 == 0 else []
    axis, heads = l.input_shapes[0].index(N), whole(l.config, "heads", 1)
    split = lambda x: x.movedim(axis, 0).unflatten(-1, (heads, -1)).transpose(1, 2)
    q, k, v = split(query), split(key), split(value)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    rows, keys = scores.shape[-2:]
    sees = torch.ones(len(q), 1, rows, keys, dtype=torch.bool)
    if word(l.config, "causal", "") == "true":
        sees = sees.tril()
    if lengths:
        length = lengths[0][:, None, None, None]
        sees = sees & (torch.arange(keys) < length)
    shares = scores.masked_fill(~sees, -1e300).softmax(-1) * sees
    return (shares @ v).transpose(1, 2).flatten(2).movedim(0, axis)


def affine(config, s):
    return {"scale": (s[-1:], 1), "bias": (s[-1:], s[-1])}


def dense_parameters(config, s):
    outputs = whole(config, "outputs")
    bias = {"bias": ([outputs], s[-1])} if word(config, "use_bias", "true") == "true" else {}
    return {"weight": ([outputs, s[-1]], s[-1]), **bias}


def conv2d_parameters(config, s):
    filters, kernel = whole(config, "filters"), numbers_of(config, "kernel", [])
    weight = [filters, s[3] // whole(config, "groups", 1)] + kernel
    fan_in = math.prod(weight[1:])
    bias = {"bias": ([filters], fan_in)} if word(config, "use_bias", "true") == "true" else {}
    return {"weight": (weight, fan_in), **bias}


@dataclasses.dataclass
class Kind:
    compute: typing.Callable  # l, inputs..., w, when -> an output, or a tuple of them
    write: typing.Callable = one_of("")  # net, x, s -> fields, or (fields, other inputs), or None
    takes: typing.Callable = always  # s -> whether random nets put it on any value of such a shape
    shapes: typing.Callable = lambda config, *s: [s[0]]  # of the outputs, from the inputs'
    parameters: typing.Callable = lambda config, s: {}  # state -> (shape, fan_in)
    buffers: dict = dataclasses.field(default_factory=dict)  # state -> value; one a channel
    loss: bool = False


def scalar(compute, loss=True):
    return Kind(compute, takes=never, shapes=lambda config, *s: [[]], loss=loss)


def function(compute, *texts, takes=always):
    return Kind(lambda l, x, w, when: compute(l.config, x), one_of(*texts or [""]), takes)


KINDS = {
    "relu": function(relu, "", "max: 0.5", "negative_slope: 0.25"),
    "sigmoid": function(lambda c, x: x.sigmoid()),
    "tanh": function(lambda c, x: x.tanh()),
    "silu": function(lambda c, x: F.silu(x)),
    "gelu": function(lambda c, x: F.gelu(x, approximate=word(c, "approximate", "NONE").lower()), "",
                     "approximate: TANH"),
    "softmax": function(lambda c, x: x.softmax(-1), takes=is_rows),
    "lrn": Kind(lrn, one_of("alpha: 0.5", "size: 3 beta: 0.5", "alpha: 2 k: 2 beta: 1"), is_rows),
    "dropout": Kind(dropout, one_of("rate: 0.25", "rate: 0.5", "rate: 0")),
    "dense": Kind(lambda l, x, w, when: F.linear(x, w["weight"], w.get("bias")), write_dense,
                  is_rows, lambda c, s: [s[:-1] + [whole(c, "outputs")]], dense_parameters),
    "conv2d": Kind(conv2d, write_conv2d, is_image,
                   lambda c, s: [window_shape(c, s, whole(c, "filters"), False)], conv2d_parameters),
    "pool2d": Kind(pool2d, write_pool2d, is_image, lambda c, s: [window_shape(c, s, s[3], True)]),
    "conv1d": Kind(conv1d, write_conv1d, is_lines,
                   lambda c, s: [line_shape(c, s, whole(c, "filters"), False)], conv1d_parameters),
    "pool1d": Kind(pool1d, write_pool1d, is_lines, lambda c, s: [line_shape(c, s, s[-1], True)]),
    # Of few channels the gradient is what rounding leaves.
    "layer_norm": Kind(
        lambda l, x, w, when: F.layer_norm(x, x.shape[-1:], w["scale"], w["bias"],
                                           number_of(l.config, "epsilon", 1e-5)),
        lambda net, x, s: (net.numbers.pick(["", "epsilon: 0.125 "])
                           + net.parameters(scale=s[-1:], bias=s[-1:])),
        lambda s: is_rows(s) and s[-1] > 2, parameters=affine),
    "batch_norm": Kind(batch_norm, write_batch_norm, is_rows, parameters=affine,
                       buffers={"running_mean": 0, "running_variance": 1}),
    "embedding": Kind(lambda l, x, w, when: F.embedding(x, w["weight"]), write_embedding, never,
                      lambda c, s: [s + [whole(c, "width")]],
                      parameters=lambda c, s: {
                          "weight": ([whole(c, "vocabulary"), whole(c, "width")], 4)}),
    "positional_embedding": Kind(
        positional_embedding, write_positional_embedding, is_sequence,
        parameters=lambda c, s: {"weight": ([whole(c, "length"), s[-1]], 4)}),
    "attention": Kind(attention, write_attention, is_sequence,
                      lambda c, *s: [s[0][:-1] + [s[0][-1] // 3] if is_packed(s) else s[0]]),
    **{kind: Kind(recurrent, takes=never, shapes=recurrent_shapes,
                  parameters=recurrent_parameters(gates))
       for kind, gates in {"lstm": 4, "gru": 3, "rnn": 1}.items()},
    "add": Kind(lambda l, *x, w, when: sum(x[1:], x[0]),
                lambda net, x, s: ("", [net.pick_like(x) for _ in range(net.numbers.between(1, 2))])),
    "multiply": Kind(lambda l, *x, w, when: math.prod(x[1:], start=x[0]),
                     lambda net, x, s: ("", [bounded(net, x)
                                             for _ in range(net.numbers.between(1, 2))])),
    "concat": Kind(lambda l, *x, w, when: torch.cat(x, whole(l.config, "axis", -1)), write_concat,
                   lambda s: len(s) > 1,
                   lambda c, *s: [replaced(s[0], axis_of(c, s[0]),
                                           sum(p[axis_of(c, p)] for p in s))]),
    "slice": Kind(lambda l, x, w, when: x.narrow(axis_of(l.config, x.shape),
                                                 ends(l.config, x.shape)[0],
                                                 l.shapes[0][axis_of(l.config, x.shape)]),
                  write_slice, lambda s: len(s) > 1,
                  lambda c, s: [replaced(s, axis_of(c, s), ends(c, s)[1] - ends(c, s)[0])]),
    "split": Kind(lambda l, x, w, when: x.split(parts(l.config, x.shape), axis_of(l.config, x.shape)),
                  write_split, lambda s: len(s) > 1,
                  lambda c, s: [replaced(s, axis_of(c, s), e) for e in parts(c, s)]),
    "flatten": Kind(lambda l, x, w, when: x.flatten(1), takes=lambda s: s[0] == N and len(s) > 1,
                    shapes=lambda c, s: [[N, math.prod(s[1:])]]),
    "reshape": Kind(lambda l, x, w, when: x.reshape([len(x)] + l.shapes[0][1:]), write_reshape,
                    lambda s: s[0] == N and len(s) > 1,
                    lambda c, s: [[N] + resolved([int(d) for d in c["dims"]], math.prod(s[1:]))]),
    "transpose": Kind(lambda l, x, w, when: x.permute([int(a) for a in l.config["axes"]]),
                      write_transpose, lambda s: len(s) > 2,
                      lambda c, s: [[s[int(a)] for a in c["axes"]]]),
    "mean_squared_error": scalar(lambda l, x, t, w, when: F.mse_loss(x, t)),
    "sigmoid_cross_entropy": scalar(
        lambda l, x, t, w, when: F.binary_cross_entropy_with_logits(x, t)),
    "softmax_cross_entropy": scalar(softmax_cross_entropy),
    "hinge": scalar(hinge),
    # softplus has the slope 1 from 20 on, which is 2e-9 too much.
    "binary_cross_entropy": scalar(binary(lambda l: lambda margin: -F.logsigmoid(margin))),
    "binary_hinge": scalar(binary(of_hinge)),
    "max_hinge": scalar(max_hinge),
    "time_to_event": scalar(time_to_event),
    "accuracy": scalar(accuracy, loss=False),
}


def resolved(dims, elements):
    return [d if d != -1 else elements // math.prod(e for e in dims if e != -1) for d in dims]
