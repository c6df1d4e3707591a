#!/usr/bin/env python3
"""Training steps of the nets of peer_nets.py in PyTorch, as bench_net measures Gyre's.

The same layers, loss, optimizer (SGD, momentum 0.9) and batch; random samples and labels that are on the
device already.  Unlike Gyre, PyTorch may take algorithms whose sums are not always the same bits, and
computes no accuracy.  BF16 is torch.autocast, with parameters, their gradients and updates in F32.
Prints a JSON line for each mode: medians over rounds in which the modes take turns.  A mode's name is one of

  eager           as written
  compile         torch.compile of net and loss
  max-autotune    torch.compile(mode="max-autotune")
  graph           the whole step captured as one CUDA graph
  compile-graph   torch.compile's step captured

or one that saves memory:

  offload         what backward reads waits in pinned host memory: torch.autograd.graph.save_on_cpu
  offload-activations  the same, but for the parameters, which are there anyway
  checkpoint      activation checkpointing, in about as many segments as each has layers

for channels-last memory; with ":contiguous" after it, for contiguous.  With --rounds=0 a round is
measured for each line on standard input, and acknowledged by one of output: see compare.
"""

import argparse
import ctypes
import gc
import json
import math
import statistics
import sys
import time

try:
    import torch
    from torch.utils.checkpoint import checkpoint_sequential
    import peer_nets
except ImportError as error:
    sys.exit("error: PyTorch is missing: %s" % error)

MODES = {
    "cpu": "eager,eager:contiguous,compile,compile:contiguous",
    "cuda": "eager,graph,compile,compile-graph,max-autotune",
}


def make_optimizer(net):
    """SGD in its fastest form that this PyTorch has."""
    arguments = dict(lr=1e-4, momentum=0.9)
    try:
        return torch.optim.SGD(net.parameters(), fused=True, **arguments)
    except (TypeError, RuntimeError):  # older than 2.3; 2.4 on a CPU
        return torch.optim.SGD(net.parameters(), **arguments)


class OffloadActivations(torch.autograd.graph.saved_tensors_hooks):
    """save_on_cpu, but for what the net's parameters hold."""

    def __init__(self, net, pin):
        kept = {p.untyped_storage().data_ptr() for p in net.parameters()}

        def pack(tensor):
            if tensor.untyped_storage().data_ptr() in kept:
                return tensor.device, tensor
            there = torch.empty_like(tensor, device="cpu", pin_memory=pin)  # also of the memory format
            there.copy_(tensor, non_blocking=pin)
            return tensor.device, there

        super().__init__(pack, lambda packed: packed[1].to(packed[0], non_blocking=pin))


def saving_memory(mode, net, loss_of, device, precision):
    """loss_of in one of the ways that save memory."""
    pin = device.type == "cuda"

    def offloaded(x, y):
        with torch.autograd.graph.save_on_cpu(pin_memory=pin):
            return loss_of(x, y)

    def activations_offloaded(x, y):
        with OffloadActivations(net, pin):
            return loss_of(x, y)

    def checkpointed(x, y):
        segments = max(1, round(math.sqrt(len(net))))
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "BF16"):
            return peer_nets.loss_of(checkpoint_sequential(net, segments, x, use_reentrant=False), y)

    return {"offload": offloaded, "offload-activations": activations_offloaded,
            "checkpoint": checkpointed}.get(mode, loss_of)


def make_step(mode, net_name, batch, device, precision):
    """A function that enqueues one training step."""
    mode, _, layout = mode.partition(":")
    memory_format = torch.contiguous_format if layout == "contiguous" else torch.channels_last
    torch.manual_seed(1)
    net = peer_nets.NETS[net_name][0]().to(device=device, memory_format=memory_format)
    samples, labels = peer_nets.random_batch(net_name, batch, device)
    if isinstance(samples, torch.Tensor) and samples.dim() == 4:
        samples = samples.to(memory_format=memory_format)
    optimizer = make_optimizer(net)

    def loss_of(x, y):
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "BF16"):
            return peer_nets.loss_of(net(x), y)

    forward = saving_memory(mode, net, loss_of, device, precision)
    if mode.startswith("compile"):
        forward = torch.compile(loss_of)
    elif mode == "max-autotune":
        forward = torch.compile(loss_of, mode="max-autotune")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(samples, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

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

    def replay(captured=step):  # keeps what the graph reads: net, batch and optimizer
        graph.replay()

    return replay


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def gemm_flops(device, precision):
    """FLOP/s of one large square product."""
    size = 8192 if device.type == "cuda" else 2048
    a = 2 * torch.rand(size, size, device=device) - 1
    if precision == "BF16":
        a = a.bfloat16()
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


def status_bytes(key):
    """A line of /proc/self/status."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))


def reset_peak(device):
    """The memory in use now, without what is free; its peak counts from here."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return status_bytes("VmRSS")


def peak(device):
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else status_bytes("VmHWM")


class Mode:
    """One way of running the step, and what was measured of it."""

    def __init__(self, name, arguments, device, precision):
        """Runs it a few times; raises whatever PyTorch raises."""
        self.name, self.device, self.seconds = name, device, []
        make_step("eager", arguments.net, 1, device, precision)()  # first use of the libraries
        before = reset_peak(device)
        self.step = make_step(name, arguments.net, arguments.batch, device, precision)
        for _ in range(3):
            loss = self.step()
        synchronize(device)
        self.loss = None if loss is None else loss.item()  # a graph's replay has none
        # Means little for a mode after the first, which uses memory again, and for one that imports
        # a compiler.
        self.memory_bytes = max(0, peak(device) - before)
        del loss
        # Without what choosing algorithms takes.
        reset_peak(device)
        for _ in range(2):
            self.step()
        synchronize(device)
        self.steps_peak_bytes = max(0, peak(device) - before)

    def round(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        synchronize(self.device)
        self.seconds.append((time.perf_counter() - start) / steps)

    def report(self, batch):
        median = statistics.median(self.seconds)
        return dict(mode=self.name, rounds=len(self.seconds), ms_per_step=1e3 * median,
                    ms_min=1e3 * min(self.seconds), ms_max=1e3 * max(self.seconds),
                    images_per_second=batch / median, memory_bytes=self.memory_bytes,
                    steps_peak_bytes=self.steps_peak_bytes, loss=self.loss)


def rounds(count):
    """Counts rounds; 0: for each line that comes, and says when each is over."""
    if count > 0:
        yield from range(count)
        return
    print("ready", flush=True)
    for index, _ in enumerate(sys.stdin):
        yield index
        print("done", flush=True)


def measure(arguments, precision, device):
    """Prints each mode's line; a mode that fails has a line that says why."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "TF32"
    torch.backends.cudnn.allow_tf32 = precision == "TF32"
    about = {"benchmark": "training step", "engine": "pytorch " + torch.__version__,
             "net": arguments.net, "device": device_name(device), "precision": precision,
             "batch": arguments.batch, "threads": torch.get_num_threads()}
    modes = []
    for name in arguments.modes.split(","):
        try:
            modes.append(Mode(name, arguments, device, precision))
        except Exception as error:  # this installation lacks a compiler, or the GPU memory
            print(json.dumps(dict(about, mode=name, error=str(error).strip()[:300])), flush=True)
    peaks = []
    for _ in rounds(arguments.rounds):
        peaks.append(gemm_flops(device, precision))
        for mode in modes:
            mode.round(arguments.steps)
    for mode in modes:
        print(json.dumps(dict(about, **mode.report(arguments.batch),
                              gemm_gflops=statistics.median(peaks or [0]) / 1e9)), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=sorted(peer_nets.NETS), required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--precision", default="F32", help="F32, TF32, BF16; several with commas")
    parser.add_argument("--modes", help="with commas; default: all but :contiguous on a GPU")
    parser.add_argument("--threads", type=int, default=0, help="of a CPU; 0: as PyTorch likes")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10, help="a round")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("error: this PyTorch (%s) sees no GPU" % torch.__version__)
    arguments.modes = arguments.modes or MODES[arguments.device]
    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
    torch.backends.cudnn.benchmark = True
    for precision in arguments.precision.split(","):
        measure(arguments, precision, torch.device(arguments.device))


if __name__ == "__main__":
    main()
