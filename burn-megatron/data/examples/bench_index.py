#!/usr/bin/env python3
"""Times of numpy's shuffle and of Megatron-LM's helper on the documents of bench_index.rs.

    pip install numpy pybind11 setuptools
    make -C MEGATRON/megatron/core/datasets
    python bench_index.py MEGATRON [SAMPLES]
"""

import importlib.util
import sys
import time
from pathlib import Path

import numpy

folder = Path(sys.argv[1]) / "megatron/core/datasets"
spec = importlib.util.spec_from_file_location("helpers_cpp", next(folder.glob("helpers_cpp*.so")))
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
samples = int(sys.argv[2]) if len(sys.argv) > 2 else 10**8


def measure(what, size, work):
    start = time.time()
    made = work()
    print(f"{what:<44}{time.time() - start:>10.2f} s{size:>10.1f} B/sample", flush=True)
    return made


state = numpy.random.RandomState(1234)
numbers = numpy.arange(samples, dtype=numpy.uint32)
measure("numpy: shuffle", 4, lambda: state.shuffle(numbers))
print("first:", numbers[:5])
del numbers

lengths = numpy.arange(samples, dtype=numpy.uint32)
lengths *= numpy.uint32(2654435761)
lengths >>= numpy.uint32(21)
lengths = numpy.maximum(lengths, 1).astype(numpy.int32)
tokens = int(lengths.sum(dtype=numpy.int64))
state = numpy.random.RandomState(1234)
whole = time.time()
documents = numpy.arange(samples, dtype=numpy.int32)
measure("numpy: shuffle of documents", 4, lambda: state.shuffle(documents))
index = measure(
    "Megatron-LM: build_sample_idx",
    8,
    lambda: helpers.build_sample_idx_int32(lengths, documents, 1024, 1, tokens, True, 1),
)
count = index.shape[0] - 1
shuffle = numpy.arange(count, dtype=numpy.uint32)
measure("numpy: shuffle of samples", 4, lambda: state.shuffle(shuffle))
print(f"{'all three, as GPTDataset makes them':<44}{time.time() - whole:>10.2f} s{16:>10.1f} B/sample; {count} samples")
del documents, index, shuffle, lengths

datasets = numpy.zeros(count, dtype=numpy.int16)
numbers = numpy.zeros(count, dtype=numpy.int64)
weights = numpy.array([0.3, 0.5, 0.2])
measure("Megatron-LM: build_blending_indices of three", 10, lambda: helpers.build_blending_indices(datasets, numbers, weights, 3, count, False))
