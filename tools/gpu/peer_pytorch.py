#!/usr/bin/env python3
"""Training steps of LeNet, AlexNet and VGG-11 in PyTorch, as bench_net measures Gyre's.

The same layers, loss, optimizer (SGD, momentum 0.9) and batch; channels-last; random images and labels
that are on the device already.  Unlike Gyre, PyTorch may take algorithms whose sums are not always the
same bits, and computes no accuracy.  Prints a JSON line for each mode: medians over rounds in which the
modes take turns.

  eager           as written
  graph           the whole step captured as one CUDA graph
  compile         torch.compile of net and loss
  compile-graph   that step captured
  max-autotune    torch.compile(mode="max-autotune")
"""

import argparse
import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
except ImportError as error:
    sys.exit("error: PyTorch is missing: %s" % error)

MODES = ("eager", "graph", "compile", "compile-graph", "max-autotune")


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2, 2),
        nn.Conv2d(20, 50, 5), nn.MaxPool2d(2, 2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def alexnet():
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(9216, 4096), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))


def vgg11():
    layers, channels = [], 3
    for group in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for filters in group:
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
            channels = filters
        layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4096, 1000))


# Net -> (constructor, shape of an image, classes).
NETS = {
    "lenet": (lenet, (1, 28, 28), 10),
    "alexnet": (alexnet, (3, 224, 224), 1000),
    "vgg11": (vgg11, (3, 224, 224), 1000),
}


def make_optimizer(net, device):
    """SGD in its fastest form that this PyTorch has."""
    arguments = dict(lr=1e-4, momentum=0.9)
    if device.type == "cuda":
        try:
            return torch.optim.SGD(net.parameters(), fused=True, **arguments)
        except TypeError:  # older than 2.3
            pass
    return torch.optim.SGD(net.parameters(), **arguments)


def make_step(mode, net_name, batch, device):
    """A function that enqueues one training step."""
    create, shape, classes = NETS[net_name]
    torch.manual_seed(1)
    net = create().to(device=device, memory_format=torch.channels_last)
    images = (2 * torch.rand(batch, *shape, device=device) - 1).to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), device=device)
    optimizer = make_optimizer(net, device)
    criterion = nn.CrossEntropyLoss()

    def loss_of(x, y):
        return criterion(net(x), y)

    forward = loss_of
    if mode.startswith("compile"):
        forward = torch.compile(loss_of)
    elif mode == "max-autotune":
        forward = torch.compile(loss_of, mode="max-autotune")

    def step():
        optimizer.zero_grad(set_to_none=True)
        forward(images, labels).backward()
        optimizer.step()

    if not mode.endswith("graph"):
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(11):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def gemm_flops(device):
    """FLOP/s of one large square product."""
    size = 8192 if device.type == "cuda" else 2048
    a = 2 * torch.rand(size, size, device=device) - 1
    torch.mm(a, a)
    synchronize(device)
    start = time.perf_counter()
    torch.mm(a, a)
    synchronize(device)
    return 2.0 * size ** 3 / (time.perf_counter() - start)


def device_name(device):
    if device.type != "cuda":
        return "cpu"
    return "%s, PyTorch %s, CUDA %s, cuDNN %s" % (
        torch.cuda.get_device_name(), torch.__version__, torch.version.cuda,
        torch.backends.cudnn.version())


def prepare(mode, arguments, device):
    """A step that has run a few times; raises whatever PyTorch raises."""
    step = make_step(mode, arguments.net, arguments.batch, device)
    for _ in range(5):
        step()
    synchronize(device)
    return step


def measure(arguments, precision, device):
    """Prints each mode's line; a mode that fails has a line that says why."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "TF32"
    torch.backends.cudnn.allow_tf32 = precision == "TF32"
    about = {"benchmark": "training step", "engine": "pytorch", "net": arguments.net,
             "device": device_name(device), "precision": precision, "batch": arguments.batch}
    steps = {}
    for mode in arguments.modes.split(","):
        try:
            steps[mode] = prepare(mode, arguments, device)
        except Exception as error:  # this installation lacks a compiler, or the GPU memory
            print(json.dumps(dict(about, mode=mode, error=str(error).strip()[:300])), flush=True)
    seconds = {mode: [] for mode in steps}
    peaks = []
    for _ in range(arguments.rounds):
        peaks.append(gemm_flops(device))
        for mode, step in steps.items():
            start = time.perf_counter()
            for _ in range(arguments.steps):
                step()
            synchronize(device)
            seconds[mode].append((time.perf_counter() - start) / arguments.steps)
    for mode, values in seconds.items():
        median = statistics.median(values)
        print(json.dumps(dict(
            about, mode=mode, rounds=arguments.rounds, ms_per_step=1e3 * median,
            ms_min=1e3 * min(values), ms_max=1e3 * max(values),
            images_per_second=arguments.batch / median,
            gemm_gflops=statistics.median(peaks) / 1e9)), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=sorted(NETS), required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--precision", default="F32", help="F32, TF32, or both with a comma")
    parser.add_argument("--modes", default=",".join(MODES), help="with commas")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10, help="a round")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("error: this PyTorch (%s) sees no GPU" % torch.__version__)
    torch.backends.cudnn.benchmark = True
    for precision in arguments.precision.split(","):
        measure(arguments, precision, torch.device(arguments.device))


if __name__ == "__main__":
    main()
