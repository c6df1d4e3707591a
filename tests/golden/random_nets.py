"""Random training runs: a seed makes a net of all layers but the recurrent, with branches, and how to train it.

Numbers of the texts are exact in F32, so that no reader of them rounds.
"""

from case import Case, layers_of, output_names, random_samples
from layers import KINDS, N, bounded, replaced, sizes
from random_numbers import Numbers, divisors
from texts import parse, whole


class Net:
    def __init__(self, numbers):
        self.numbers, self.ignored = numbers, numbers.pick([None, None, 255])
        self.inputs, self.layers = "", ""
        self.labels = {}  # LABEL inputs: (kind, dims, values) -> name
        self.shapes, self.kinds, self.uses = {}, {}, {}  # of values that are real
        self.shared = {}  # shape -> what is said of parameters of one name

    def text(self):
        return f'name: "net"\n{self.inputs}{self.layers}'

    def input(self, name, dims, values=0):
        """One of `values` labels, or, for 0, of pixels."""
        key = (name, tuple(dims), values)
        if key in self.labels:
            return self.labels[key]
        name += str(len(self.labels)) if values else ""
        kind = " type: LABEL" if values else ""
        self.inputs += f'input {{ name: "{name}" dims: {dims}{kind} }}\n'.replace(" dims: []", "")
        if values:
            self.labels[key] = name
        else:
            self.know(name, [N] + dims, "input")
        return name

    def know(self, name, shape, kind):
        self.shapes[name], self.kinds[name], self.uses[name] = shape, kind, 0

    def add(self, kind, fields, *inputs, phase=""):
        name = f"{kind[:4]}{self.layers.count('layer {')}"
        names = "".join(f'input: "{i}" ' for i in inputs)
        self.layers += f'layer {{ name: "{name}" {names}{phase}{kind} {{ {fields} }} }}\n'
        layer = layers_of(parse(self.text()))[-1]
        for i in inputs:
            if i in self.uses:
                self.uses[i] += 1
        for output, shape in zip(output_names(layer), layer.shapes):
            if all(i in self.labels.values() for i in inputs) and kind == "transpose":
                self.labels[output] = output
            elif shape:
                self.know(output, shape, kind)
        return name

    def pick_like(self, x, but_for=None):
        """A value of x's shape, but for the extent of an axis; perhaps x."""
        like = lambda s: s if but_for is None else replaced(s, but_for, 0)
        shape = self.shapes[x]
        return self.numbers.pick([n for n, s in self.shapes.items() if len(s) == len(shape)
                                  and (but_for is None or s[but_for] != N)
                                  and like(s) == like(shape)])

    def parameters(self, **shapes):
        """What is said of parameters, by state; those of one shape may be one."""
        text, taken = "", []
        for state, shape in shapes.items():
            one = self.shared.get(tuple(shape))
            if one and one not in taken and self.numbers.chance(60):
                taken.append(one)
                text += f"{state} {{ {one}}} "
                continue
            fields = ""
            if self.numbers.chance(20):
                fields += f"learning_rate_multiplier: {self.numbers.pick(['0.5', '2', '0.25', '0'])} "
            if self.numbers.chance(20):
                fields += f"decay_multiplier: {self.numbers.pick(['0', '0.5', '4'])} "
            if not one and self.numbers.chance(40):
                fields += f'name: "shared{len(self.shared)}" '
                self.shared[tuple(shape)] = fields
                taken.append(fields)
            text += f"{state} {{ {fields}}} " if fields else ""
        return text

    def trained(self, weight):
        if self.numbers.chance(20):
            return "use_bias: false " + self.parameters(weight=weight)
        return self.parameters(weight=weight, bias=weight[:1])

    def outputs_for(self, inputs, least=1):
        """Of a dense layer that can share its weight; None where none can."""
        rows = [s[0] for s in self.shared if len(s) == 2 and s[1] == inputs and s[0] >= least]
        return self.numbers.pick(rows) if rows and self.numbers.chance(70) else None

    def grow(self, x):
        """A layer on x."""
        shape = self.shapes[x]
        kinds = [k for k in KINDS if KINDS[k].takes(shape)]
        special = [k for k in kinds if not KINDS[k].takes([N, 8])]
        kind = self.numbers.pick(special if special and self.numbers.chance(40) else kinds)
        written = KINDS[kind].write(self, x, shape)
        if written is not None:
            fields, others = (written, []) if isinstance(written, str) else written
            self.add(kind, fields, x, *others)

    def sequence(self):
        """Rows of a table for random tokens, perhaps with time before the samples."""
        dims = [self.numbers.between(1, 6) for _ in range(self.numbers.pick([0, 1, 1, 1, 1, 2]))]
        fields = KINDS["embedding"].write(self, None, None)
        tokens = self.input("tokens", dims, int(fields.split()[1]))
        if dims and self.numbers.chance(25):
            axes = [1, 0] + list(range(2, len(dims) + 1))
            tokens = self.add("transpose", f"axes: {axes}", tokens)
        x = self.add("embedding", fields, tokens)
        if KINDS["positional_embedding"].takes(self.shapes[x]) and self.numbers.chance(50):
            self.add("positional_embedding",
                     KINDS["positional_embedding"].write(self, x, self.shapes[x]), x)

    def ignore(self, classes):
        ignored = self.ignored
        if ignored is None and self.numbers.chance(20):
            ignored = self.numbers.below(classes)
        return f"ignore_label: {ignored} " if ignored is not None else ""

    def head(self, x):
        """Scores, their loss, perhaps an accuracy, and a loss of two values alike."""
        numbers = self.numbers
        if numbers.chance(15):
            kind = numbers.pick(["mean_squared_error", "sigmoid_cross_entropy"])
            self.add(kind, "loss_weight: 0.125 ", x, bounded(self, x))
        rank, at = len(self.shapes[x]), self.shapes[x].index(N)
        if rank < 3 or numbers.chance(50):  # a label a sample
            if at > 0:
                x = self.add("transpose", f"axes: {[at] + [a for a in range(rank) if a != at]}", x)
            x = x if rank == 2 else self.add("flatten", "", x) if rank > 2 else self.add(
                "reshape", "dims: 1", x)
        shape = self.shapes[x]
        binary = numbers.chance(15)
        classes = 1 if binary else self.outputs_for(shape[-1], 2) or numbers.between(2, 6)
        scores = self.add("dense", f"outputs: {classes} " + self.trained([classes, shape[-1]]), x)
        labels = self.input("label", sizes(shape[:-1]), max(classes, 2))
        at = shape.index(N)
        if at > 0:
            axes = list(range(1, len(shape) - 1))
            labels = self.add("transpose", f"axes: {axes[:at] + [0] + axes[at:]}", labels)
        weight = numbers.pick(["", "", "loss_weight: 0.5 ", "loss_weight: 2 "])
        kind, fields = "softmax_cross_entropy", numbers.pick(["", "", "label_smoothing: 0.125 "])
        if binary:
            kind = numbers.pick(["binary_cross_entropy", "binary_hinge", "max_hinge"])
            fields = numbers.pick(["", "positive_weight: 2.5 "])
        elif numbers.chance(25):
            kind, fields = "hinge", numbers.pick(["", "norm: L2 ", "margin: 0.5 "])
        self.add(kind, fields + weight + self.ignore(max(classes, 2)), scores, labels)
        if not binary and numbers.chance(60):
            phase = "phase: TEST " if numbers.chance(20) else ""
            top = f"top_k: {numbers.between(1, classes)} "
            self.add("accuracy", top + self.ignore(classes), scores, labels, phase=phase)


def optimizer(numbers):
    text = numbers.pick(["sgd {}", "sgd { momentum: 0.875 }", "sgd { momentum: 0.5 nesterov: true }",
                         "adam { beta1: 0.875 beta2: 0.96875 epsilon: 0.0009765625 }",
                         "adamw { beta1: 0.875 beta2: 0.96875 epsilon: 0.0009765625 }"])
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


def trained(layer):
    return any(layer.config.get(state, [{}])[0].get("learning_rate_multiplier") != ["0"]
               for state in layer.parameters)


def random_case(seed):
    numbers = Numbers(seed)
    net = Net(numbers)
    first = numbers.pick(["image", "image", "sequence", "both"])
    if first != "sequence":
        net.input("image", [numbers.between(3, 11), numbers.between(3, 11), numbers.between(1, 4)])
    if first != "image":
        net.sequence()
    for _ in range(numbers.between(1, 14)):
        values = list(net.shapes)
        net.grow(values[-1] if numbers.chance(75) else numbers.pick(values))
    # Every layer leads to a loss, but perhaps not by each of its outputs; some values feed one beside
    # the layers that use them.
    for name in list(net.shapes):
        unread = net.uses[name] == 0 and not (":" in name and numbers.chance(50))
        if unread or net.kinds[name] != "input" and numbers.chance(10):
            net.head(name)
    if numbers.chance(15):  # nobody uses it
        net.add("relu", "", numbers.pick(list(net.shapes)))

    batch = numbers.between(3, 9)
    trainer = (f"optimizer {{ {optimizer(numbers)} }}\nlearning_rate {{ {learning_rate(numbers)} }}\n"
               f"batch: {batch} steps: 5 test_batch: {numbers.between(1, 9)}\nevaluate_every: 2\n"
               f"seed: {numbers.bits()}\n"
               f"distributed {{ bucket_bytes: {numbers.pick([1, 64, 4096, 1048576])} }}\n")
    text = net.text()
    if not any(trained(layer) for layer in layers_of(parse(text))):
        text = text.replace("learning_rate_multiplier: 0 ", "")
    texts = parse(text)
    return Case(f"seed {seed}", text, in_batches(seed, layers_of(texts), trainer),
                random_samples(numbers, texts, max(batch, numbers.between(5, 23))),
                random_samples(numbers, texts, numbers.between(1, 11)))


def in_batches(seed, layers, trainer):
    """The trainer's text, with the step's samples perhaps in several batches: where labels are ignored
    and all losses count the same ones, so that batches have unlike weights, in each that has them."""
    losses = [layer for layer in layers if KINDS[layer.kind].loss]
    targets = {(layer.inputs[1], layer.kind == "max_hinge", whole(layer.config, "ignore_label"))
               if "ignore_label" in layer.config else None for layer in losses}
    numbers, batch = Numbers(seed + 2**34), whole(parse(trainer), "batch")
    least = 2 if any(layer.kind == "batch_norm" for layer in layers) else 1  # PyTorch norms no single one
    sizes_of = [d for d in divisors(batch)[:-1] if d >= least]
    if len(targets) > 1 or not sizes_of or targets == {None} and numbers.chance(50):
        return trainer
    part = numbers.pick(sizes_of)
    return trainer.replace(f"batch: {batch} ", f"batch: {part} accumulate: {batch // part} ", 1)


def way_of(case, seed):
    """Where such a case trains: arguments, the step to be killed after, and ranks."""
    numbers, layers = Numbers(seed + 2**32), layers_of(parse(case.net))
    # More ranks would each normalise by their own samples.
    local = any(layer.kind == "batch_norm" and "synchronised" not in layer.config for layer in layers)
    device, step = numbers.pick(["cpu", "sim"]), numbers.between(1, 4)
    ranks = 1 if local else numbers.between(1, 3)
    ranks = min(ranks, whole(parse(case.trainer), "batch"))
    arguments = [f"--device={device}"]
    if ranks > 1 and numbers.chance(50):
        # Ranks that serve see no batch whose statistics or targets they could add.
        summed = any(layer.kind == "batch_norm" or "ignore_label" in layer.config for layer in layers)
        servers = 0 if summed or numbers.chance(50) else numbers.between(1, ranks - 1)
        arguments += ["--sync=bsp", f"--servers={servers}"]
    return arguments, step, {"ranks": ranks}
