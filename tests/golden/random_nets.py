"""Random training runs: a seed makes a net of all layers, with branches, and how to train it.

Numbers of the texts are exact in F32, so that no reader of them rounds.
"""

import math

from case import Case, Numbers, layers_of, parse, random_samples


class Net:
    def __init__(self, numbers, shape, classes, ignored):
        self.numbers, self.classes, self.ignored = numbers, classes, ignored
        self.text = ('name: "net"\n'
                     f'input {{ name: "image" dims: {shape} }}\ninput {{ name: "label" type: LABEL }}\n')
        self.shapes = {"image": shape}
        self.uses = {"image": 0}
        self.heads = 0

    def add(self, kind, fields, x, labels=False, phase="", others=()):
        name = f"{kind[:4]}{len(self.shapes)}"
        inputs = "".join(f'input: "{i}" ' for i in [x, *others] + ["label"] * labels)
        self.text += f'layer {{ name: "{name}" {inputs}{phase}{kind} {{ {fields} }} }}\n'
        self.shapes[name] = layers_of(parse(self.text))[-1].shape
        for i in [x, *others]:
            self.uses[i] += 1
        self.uses[name] = 0
        return name

    def alike(self, x):
        """A value of x's shape, perhaps x."""
        return self.numbers.pick([n for n, s in self.shapes.items() if s == self.shapes[x]])

    def parameter(self, name):
        fields = ""
        if self.numbers.chance(25):
            fields += f"learning_rate_multiplier: {self.numbers.pick(['0.5', '2', '0.25', '0'])} "
        if self.numbers.chance(25):
            fields += f"decay_multiplier: {self.numbers.pick(['0', '0.5', '4'])} "
        return f"{name} {{ {fields}}} " if fields else ""

    def trained(self):
        bias = "use_bias: false " if self.numbers.chance(20) else ""
        return bias + self.parameter("weight") + ("" if bias else self.parameter("bias"))

    def window(self, x, kind):
        """Kernel, stride and padding (and dilation) that fit; None where none does."""
        numbers = self.numbers
        kernel, stride = ([numbers.between(1, most), numbers.between(1, most)] for most in (4, 3))
        dilation = [numbers.between(1, 2), numbers.between(1, 2)] if kind == "conv2d" else [1, 1]
        most = 2 if kind == "conv2d" else min(kernel) - 1
        padding = [numbers.between(0, most) for _ in range(4)]
        for i in range(2):
            if self.shapes[x][i] + sum(padding[2 * i:2 * i + 2]) < dilation[i] * (kernel[i] - 1) + 1:
                return None
        short = {1: kernel[0] == kernel[1], 2: stride[0] == stride[1]}
        fields = f"kernel: {kernel[0] if short[1] else kernel} "
        if kind == "pool2d" and stride == kernel or stride == [1, 1] and kind == "conv2d":
            pass
        else:
            fields += f"stride: {stride[0] if short[2] else stride} "
        if any(padding):
            fields += f"padding: {padding} "
        if dilation != [1, 1]:
            fields += f"dilation: {dilation} "
        return fields

    def grow(self, x):
        """A layer on x, an image or a row."""
        numbers = self.numbers
        image = len(self.shapes[x]) == 3
        kinds = ["dense", "relu", "relu", "dropout", "flatten", "softmax", "lrn", "add", "multiply",
                 numbers.pick(["sigmoid", "tanh", "gelu", "silu"])]
        if self.shapes[x][-1] > 1:  # the gradient of one channel's scale is 0, but for rounding
            kinds.append("layer_norm")
        kind = numbers.pick(kinds + ["conv2d", "conv2d", "conv2d", "pool2d", "pool2d"] * image)
        others = ()
        if kind == "pool2d" and numbers.chance(20):
            fields = f"global: true kind: {numbers.pick(['MAX', 'AVERAGE'])} "
        elif kind in ("conv2d", "pool2d"):
            fields = self.window(x, kind)
            if fields is None:
                return None
            if kind == "conv2d":
                channels = self.shapes[x][2]
                groups = numbers.pick([g for g in range(1, channels + 1) if channels % g == 0])
                fields += f"filters: {groups * numbers.between(1, 4)} "
                fields += (f"groups: {groups} " if groups > 1 else "") + self.trained()
            else:
                fields += f"kind: {numbers.pick(['MAX', 'AVERAGE'])} "
        elif kind == "relu":
            fields = numbers.pick(["", "", "negative_slope: 0.25"])
        elif kind == "dropout":
            fields = f"rate: {numbers.pick(['0.25', '0.5', '0'])}"
        elif kind == "dense":
            fields = f"outputs: {numbers.between(1, 9)} " + self.trained()
        elif kind == "gelu":
            fields = numbers.pick(["", "approximate: TANH"])
        elif kind == "layer_norm":
            fields = (numbers.pick(["", "epsilon: 0.125 "]) + self.parameter("scale")
                      + self.parameter("bias"))
        elif kind == "lrn":
            fields = numbers.pick(["alpha: 0.5", "size: 3 beta: 0.5", "alpha: 2 k: 2 beta: 1"])
        else:
            fields = ""
            if kind in ("add", "multiply"):
                others = [self.alike(x) for _ in range(numbers.between(1, 2))]
        return self.add(kind, fields, x, others=others)

    def label_fields(self):
        ignored = self.ignored
        if ignored is None and self.numbers.chance(20):
            ignored = self.numbers.below(self.classes)
        return f"ignore_label: {ignored} " if ignored is not None else ""

    def head(self, x):
        """Scores, their loss, perhaps an accuracy, and a loss of two values alike."""
        numbers = self.numbers
        if numbers.chance(15):
            kind = numbers.pick(["mean_squared_error", "sigmoid_cross_entropy"])
            self.add(kind, "loss_weight: 0.125 ", x, others=[self.alike(x)])
        if len(self.shapes[x]) > 1:
            x = self.add("flatten", "", x)
        scores = self.add("dense", f"outputs: {self.classes} " + self.trained(), x)
        weight = numbers.pick(["", "", "loss_weight: 0.5 ", "loss_weight: 2 "])
        if numbers.chance(25):
            norm = numbers.pick(["", "norm: L2 ", "margin: 0.5 "])
            self.add("hinge", norm + weight + self.label_fields(), scores, labels=True)
        else:
            smoothing = numbers.pick(["", "", "label_smoothing: 0.125 "])
            self.add("softmax_cross_entropy", smoothing + weight + self.label_fields(), scores,
                     labels=True)
        if numbers.chance(60):
            phase = "phase: TEST " if numbers.chance(20) else ""
            top = f"top_k: {numbers.between(1, self.classes)} "
            self.add("accuracy", top + self.label_fields(), scores, labels=True, phase=phase)


def optimizer(numbers):
    text = numbers.pick(["sgd {}", "sgd { momentum: 0.875 }", "sgd { momentum: 0.5 nesterov: true }",
                         "adam { beta1: 0.875 beta2: 0.96875 epsilon: 0.0009765625 }"])
    if numbers.chance(50):
        text += f" weight_decay: {numbers.pick(['0.0625', '0.0009765625'])}"
    if numbers.chance(40):
        text += f" clip_norm: {numbers.pick(['0.125', '1', '64'])}"
    return text


def learning_rate(numbers):
    text = f"base: {numbers.pick(['0.125', '0.03125', '0.0078125'])}"
    if numbers.chance(40):
        text += f" warmup_steps: {numbers.between(1, 6)}"
    return text + numbers.pick(["", " constant {}", " step { every: 2 gamma: 0.5 }",
                                " cosine {}", " cosine { final: 0.00390625 }"])


def random_case(seed):
    numbers = Numbers(seed)
    shape = [numbers.between(3, 13), numbers.between(3, 13), numbers.between(1, 4)]
    classes = numbers.between(2, 6)
    ignored = numbers.pick([None, None, 255])
    net = Net(numbers, shape, classes, ignored)
    for _ in range(numbers.between(1, 9)):
        names = [n for n in net.shapes if math.prod(net.shapes[n]) > 0]
        net.grow(names[-1] if numbers.chance(75) else numbers.pick(names))
    # Every layer leads to a loss; some values feed one beside the layers that use them.
    for name in list(net.shapes):
        if net.uses[name] == 0 or name != "image" and numbers.chance(15):
            net.head(name)
    if numbers.chance(15):  # nobody uses it
        net.add("relu", "", numbers.pick([n for n in net.shapes if net.shapes[n]]))

    labels = list(range(classes)) * 3 + ([255] if ignored else [])
    batch = numbers.between(3, 9)
    trainer = (f"optimizer {{ {optimizer(numbers)} }}\nlearning_rate {{ {learning_rate(numbers)} }}\n"
               f"batch: {batch} steps: 5 test_batch: {numbers.between(1, 9)}\nevaluate_every: 2\n"
               f"seed: {numbers.bits()}\n"
               f"distributed {{ bucket_bytes: {numbers.pick([1, 64, 4096, 1048576])} }}\n")
    return Case(f"seed {seed}", net.text, trainer,
                random_samples(numbers, [max(batch, numbers.between(5, 23))] + shape, labels),
                random_samples(numbers, [numbers.between(1, 11)] + shape, labels))
