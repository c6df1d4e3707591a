#!/usr/bin/env python3
"""Predictions of onnxruntime's default session, for compare_latency.

Random inputs.  Prints what bench_predict prints: a JSON line of the median call of a round.
"""

import argparse
import json
import statistics
import sys
import time


def inputs(session, batch):
    import numpy
    random = numpy.random.default_rng(1)
    made = {}
    for value in session.get_inputs():
        shape = [batch] + [d if isinstance(d, int) else 1 for d in value.shape[1:]]
        made[value.name] = (random.random(shape, dtype=numpy.float32) if "float" in value.type
                            else numpy.ones(shape, dtype=numpy.int32))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--onnx", required=True, help="the net's file")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--calls", type=int, default=20, help="of a round")
    arguments = parser.parse_args()

    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    session = onnxruntime.InferenceSession(arguments.onnx, options,
                                           providers=["CPUExecutionProvider"])
    given = inputs(session, arguments.batch)

    def measure():
        seconds = []
        for _ in range(arguments.calls):
            start = time.perf_counter()
            session.run(None, given)
            seconds.append(time.perf_counter() - start)
        return 1e3 * statistics.median_high(seconds)

    measure()  # a warm-up
    rounds = []
    print("ready", flush=True)
    for _ in sys.stdin:
        rounds.append(measure())
        print("done", flush=True)
    print(json.dumps({"bench": "onnxruntime", "version": onnxruntime.__version__,
                      "onnx": arguments.onnx, "batch": arguments.batch,
                      "threads": arguments.threads, "calls": arguments.calls,
                      "rounds": len(rounds), "ms_per_call": statistics.median_high(rounds),
                      "ms_per_call_min": min(rounds), "ms_per_call_max": max(rounds)}))


if __name__ == "__main__":
    main()
