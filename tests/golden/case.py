"""A training run that two programs can make alike: texts, data and first weights, as files.

Pixels, labels and weights come from splitmix64 alone and are exact in F32, so Gyre in either
precision and the judge (pytorch.py) begin with the same numbers.  The standard library alone.
"""

import array
import dataclasses
import functools
import json
import math
import os
import re
import struct
import sys

assert sys.byteorder == "little"


class Numbers:
    """splitmix64 (Steele, Lea, Flood 2014): the same numbers in every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return z ^ z >> 31

    def below(self, bound):
        return self.bits() * bound >> 64

    def between(self, first, last):
        return first + self.below(last - first + 1)

    def pick(self, values):
        return values[self.below(len(values))]

    def chance(self, percent):
        return self.below(100) < percent


_TOKEN = re.compile(r'#[^\n]*|"([^"]*)"|([\w.+-]+)|([{}:\[\],])')


def parse(text):
    """Protobuf text: {field: [value, ...]}; a value is a message, a string or a number's text."""
    tokens = [(m[1], m[2], m[3]) for m in _TOKEN.finditer(text) if not m[0].startswith("#")]

    def message(at):
        fields = {}
        while at < len(tokens) and tokens[at][2] != "}":
            values = fields.setdefault(tokens[at][1], [])
            at += 1
            if tokens[at][2] == "{":
                inner, at = message(at + 1)
                values.append(inner)
            else:
                at += 1  # the colon
                closing = "]" if tokens[at][2] == "[" else None
                at += closing is not None
                while True:
                    string, word, sign = tokens[at]
                    at += 1
                    if sign is None:
                        values.append(string if string is not None else word)
                    if closing is None or sign == closing:
                        break
        return fields, at + 1

    return message(0)[0]


def numbers_of(config, field, default, count=2):
    """A repeated field that may hold one value for all."""
    values = [int(v) for v in config.get(field, [])] or list(default)
    if len(values) == count:
        return values
    return values * count if len(values) == 1 else [v for v in values for _ in range(2)]


LOSSES = ("softmax_cross_entropy", "hinge", "mean_squared_error", "sigmoid_cross_entropy")
SCALARS = LOSSES + ("accuracy",)


@dataclasses.dataclass
class Layer:
    name: str
    kind: str
    config: dict
    inputs: list
    phase: str
    shape: list  # of a sample's output
    parameters: dict  # name -> (shape, fan_in)


def layers_of(net):
    """The layers of a parsed net, which stand in their order, with shapes."""
    shapes = {i["name"][0]: [int(d) for d in i.get("dims", [])] for i in net["input"]}
    before = net["input"][0]["name"][0]
    layers = []
    for text in net["layer"]:
        kind = next(k for k in text if k not in ("name", "input", "phase"))
        config = text[kind][0]
        inputs = text.get("input", [before])
        x = shapes[inputs[0]]
        shape, parameters = x, {}
        if config.get("global") == ["true"]:
            shape = [1, 1, x[2]]
        elif kind in ("conv2d", "pool2d"):
            kernel = numbers_of(config, "kernel", [])
            stride = numbers_of(config, "stride", kernel if kind == "pool2d" else [1])
            dilation = numbers_of(config, "dilation", [1])
            padding = numbers_of(config, "padding", [0], 4)
            out = []
            for i in range(2):
                padded = x[i] + padding[2 * i] + padding[2 * i + 1]
                out.append((padded - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1)
            shape = out + [x[2]]
        if kind == "conv2d":
            filters, groups = int(config["filters"][0]), int(config.get("groups", ["1"])[0])
            shape = out + [filters]
            weight = [filters, x[2] // groups] + kernel
            parameters["weight"] = (weight, math.prod(weight[1:]))
        elif kind == "dense":
            outputs = int(config["outputs"][0])
            shape = x[:-1] + [outputs]
            parameters["weight"] = ([outputs, x[-1]], x[-1])
        elif kind == "layer_norm":
            parameters = {"scale": (x[-1:], 1), "bias": (x[-1:], x[-1])}
        elif kind == "flatten":
            shape = [math.prod(x)]
        elif kind in SCALARS:
            shape = None
        if "weight" in parameters and config.get("use_bias", ["true"])[0] == "true":
            parameters["bias"] = ([shape[-1]], parameters["weight"][1])
        name = text["name"][0]
        shapes[name] = shape
        if kind not in SCALARS:
            before = name
        layers.append(Layer(name, kind, config, inputs, text.get("phase", ["ALWAYS"])[0], shape,
                            parameters))
    return layers


@dataclasses.dataclass
class Samples:
    shape: list  # of all images: N, H, W, C
    pixels: bytes
    labels: bytes

    def write(self, prefix):
        with open(prefix + "-images.idx", "wb") as file:
            file.write(struct.pack(">I4I", 0x804, *self.shape) + self.pixels)
        with open(prefix + "-labels.idx", "wb") as file:
            file.write(struct.pack(">II", 0x801, self.shape[0]) + self.labels)


def random_samples(numbers, shape, labels):
    size = math.prod(shape)
    pixels = b"".join(numbers.bits().to_bytes(8, "little") for _ in range(size // 8 + 1))[:size]
    return Samples(shape, pixels, bytes(numbers.pick(labels) for _ in range(shape[0])))


@functools.lru_cache(maxsize=1)
def first_weights(net):
    """Of a net's text: uniform, of a variance near 1 / fan_in; exact in F32."""
    tensors = {}
    for layer in layers_of(parse(net)):
        for state, (shape, fan_in) in layer.parameters.items():
            name = layer.name + "." + state
            numbers = Numbers(int.from_bytes(name.encode()[-8:], "little"))
            scale = 2.0 ** (round(math.log2(math.sqrt(3 / fan_in))) - 23)
            tensors[name] = (shape, [((numbers.bits() >> 40) - 2**23) * scale
                                     for _ in range(math.prod(shape))])
    return tensors


@dataclasses.dataclass
class Case:
    name: str
    net: str      # text
    trainer: str  # text from `optimizer` on; data and precision come by themselves
    train: Samples
    test: Samples

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.train.write(folder + "/train")
        self.test.write(folder + "/test")
        with open(folder + "/net.textproto", "w") as file:
            file.write(self.net)
        sets = "".join(
            f'  {s} {{ idx {{ images: "{s}-images.idx" labels: "{s}-labels.idx" }} }}\n'
            for s in ("train", "test"))
        with open(folder + "/trainer.textproto", "w") as file:
            file.write(f'net: "net.textproto"\ndata {{\n{sets}'
                       f"  normalization {{ mean: 0.25 std: 0.5 }}\n}}\n{self.trainer}\n")
        tensors = first_weights(self.net)
        for precision in ("F32", "F64"):
            write_safetensors(f"{folder}/{precision}.safetensors", precision, tensors)


_CODES = {"F32": "f", "F64": "d"}


def write_safetensors(path, dtype, tensors):
    header, data = {}, b""
    for name, (shape, values) in sorted(tensors.items()):
        piece = array.array(_CODES[dtype], values).tobytes()
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        tensors[name] = array.array(_CODES[entry["dtype"]], data[8 + length + first:8 + length + last])
    return tensors


def summary(values, samples):
    """The norm of a tensor and some of its values, spread over it, first and last among them."""
    last = len(values) - 1
    at = sorted({i * last // (samples - 1) for i in range(samples)})
    return [math.sqrt(math.fsum(v * v for v in values))] + [values[i] for i in at]
