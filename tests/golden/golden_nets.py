"""The nets with golden values: ten steps of each with four optimizers, or two."""

from case import Case, random_samples
from random_numbers import Numbers
from texts import parse

OPTIMIZERS = {
    "momentum": ("sgd { momentum: 0.875 }", "0.00390625"),
    "nesterov": ("sgd { momentum: 0.875 nesterov: true }", "0.00390625"),
    "adamw": ("adamw { beta1: 0.875 beta2: 0.96875 epsilon: 0.0009765625 }", "0.001953125"),
    "adam": ("adam { beta1: 0.875 beta2: 0.96875 epsilon: 0.0009765625 }", "0.001953125"),
}
# A net whose layers are what matters: the others have shown the optimizers.
FEWER = {net: ["momentum", "adamw"] for net in ("recurrent", "profiles")}


def golden_cases(paths):
    """Of the net texts at `paths`, a case an optimizer."""
    for path in paths:
        with open(path) as file:
            net = file.read()
        texts = parse(net)
        for name in FEWER.get(texts["name"][0], OPTIMIZERS):
            optimizer, rate = OPTIMIZERS[name]
            numbers = Numbers(1)
            trainer = (f"optimizer {{ {optimizer} weight_decay: 0.0009765625 }}\n"
                       f"learning_rate {{ base: {rate} }}\n"
                       "batch: 16 steps: 10 evaluate_every: 10 seed: 7\n")
            yield Case(f"{texts['name'][0]} {name}", net, trainer,
                       random_samples(numbers, texts, 40), random_samples(numbers, texts, 21))
