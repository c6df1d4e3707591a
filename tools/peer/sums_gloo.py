#!/usr/bin/env python3
"""A sum of F32 over ranks by Gloo, in place, as PyTorch has it: what sums_mpi.cc prints, for
   RANK=R WORLD_SIZE=N MASTER_ADDR=... MASTER_PORT=... sums_gloo.py ROUNDS BYTES..."""

import json
import statistics
import sys
import time

import torch
import torch.distributed

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
ranks = torch.distributed.get_world_size()
for size in map(int, sys.argv[2:]):
    data = torch.ones(size // 4)
    torch.distributed.all_reduce(data)
    assert bool((data == ranks).all())
    data.zero_()
    sums = min(max((2 << 20) // (size + 1), 1), 1000)
    seconds = []
    for _ in range(int(sys.argv[1]) + 1):
        torch.distributed.barrier()
        begin = time.perf_counter()
        for _ in range(sums):
            torch.distributed.all_reduce(data)
        seconds.append((time.perf_counter() - begin) / sums)
    if torch.distributed.get_rank() == 0:
        print(json.dumps({"algorithm": "Gloo", "ranks": ranks, "bytes": size,
                          "median_us": statistics.median(seconds[1:]) * 1e6}), flush=True)
torch.distributed.destroy_process_group()
