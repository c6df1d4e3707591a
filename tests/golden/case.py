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
import struct
import sys

from layers import KINDS, N, sizes
from random_numbers import Numbers
from texts import parse, whole, word

assert sys.byteorder == "little"


@dataclasses.dataclass
class Layer:
    name: str
    kind: str
    config: dict
    inputs: list
    phase: str
    input_shapes: list
    shapes: list  # of its outputs
    parameters: dict  # state -> (name, shape, fan_in)
    buffers: dict  # name -> (shape, value)


def layers_of(net):
    """The layers of a parsed net, which stand in their order, with shapes."""
    shapes = {i["name"][0]: [N] + [int(d) for d in i.get("dims", [])] for i in net["input"]}
    before = net["input"][0]["name"][0]
    layers = []
    for text in net["layer"]:
        name, kind = text["name"][0], next(k for k in text if k not in ("name", "input", "phase"))
        config, inputs = text[kind][0], text.get("input", [before])
        own, taken = KINDS[kind], [shapes[i] for i in inputs]
        parameters = {state: (word(word(config, state, {}), "name", f"{name}.{state}"), *of)
                      for state, of in own.parameters(config, taken[0]).items()}
        buffers = {f"{name}.{state}": (taken[0][-1:], v) for state, v in own.buffers.items()}
        layer = Layer(name, kind, config, inputs, word(text, "phase", "ALWAYS"), taken,
                      own.shapes(config, *taken), parameters, buffers)
        shapes.update(zip(output_names(layer), layer.shapes))
        before = name if layer.shapes[0] else before
        layers.append(layer)
    return layers


def output_names(layer):
    return [layer.name] + [f"{layer.name}:{k}" for k in range(1, len(layer.shapes))]


def labels_in(layers, name):
    """What a LABEL input may hold: as the first layer that reads it says."""
    layer = next(layer for layer in layers if name in layer.inputs)
    if layer.kind == "transpose":
        return labels_in(layers, layer.name)
    if layer.kind == "embedding":
        return range(whole(layer.config, "vocabulary"))
    if layer.kind in ("attention", "lstm", "gru", "rnn"):  # lengths
        return range(sizes(layer.input_shapes[-2])[0] + 1)
    classes = max(layer.input_shapes[0][-1], 2)  # of one score a label: 0 and 1
    ignored = whole(layer.config, "ignore_label", 0)
    return list(range(classes)) + [ignored] * (ignored >= classes)


def random_samples(numbers, net, count):
    """Of a parsed net: input -> (shape of all, bytes)."""
    layers, samples = layers_of(net), {}
    for text in net["input"]:
        name, shape = text["name"][0], [count] + [int(d) for d in text.get("dims", [])]
        size = math.prod(shape)
        if word(text, "type", "REAL") == "REAL":
            words = (numbers.bits().to_bytes(8, "little") for _ in range(size // 8 + 1))
            samples[name] = shape, b"".join(words)[:size]
        else:
            values = labels_in(layers, name)
            samples[name] = shape, bytes(numbers.pick(values) for _ in range(size))
    return samples


def write_samples(prefix, samples):
    for name, (shape, values) in samples.items():
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {tuple(shape)}}}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        with open(f"{prefix}-{name}.npy", "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values)


@functools.lru_cache(maxsize=1)
def first_weights(net):
    """Of a net's text: uniform, of a variance near 1 / fan_in; exact in F32."""
    tensors = {}
    for layer in layers_of(parse(net)):
        for name, shape, fan_in in layer.parameters.values():
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
    train: dict   # input -> (shape, bytes)
    test: dict

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        data = ""
        for which, samples in ("train", self.train), ("test", self.test):
            write_samples(f"{folder}/{which}", samples)
            arrays = " ".join(f'array {{ input: "{i}" file: "{which}-{i}.npy" }}' for i in samples)
            data += f"  {which} {{ arrays {{ {arrays} }} }}\n"
        for text in parse(self.net)["input"]:
            if word(text, "type", "REAL") == "REAL":
                data += f'  normalization {{ input: "{text["name"][0]}" mean: 0.25 std: 0.5 }}\n'
        with open(folder + "/net.textproto", "w") as file:
            file.write(self.net)
        with open(folder + "/trainer.textproto", "w") as file:
            file.write(f'net: "net.textproto"\ndata {{\n{data}}}\n{self.trainer}\n')
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
