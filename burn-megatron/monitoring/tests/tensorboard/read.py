"""Prints what the real tensorboard package finds in a folder, a line for each value: kind, tag, step and value.

    pip install tensorboard
    python read.py FOLDER
"""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

UNLIMITED = {"scalars": 0, "tensors": 0, "histograms": 0, "compressedHistograms": 0}

accumulator = EventAccumulator(sys.argv[1], size_guidance=UNLIMITED, purge_orphaned_data=True)
accumulator.Reload()
print("version", accumulator.file_version)
tags = accumulator.Tags()
for tag in sorted(tags["scalars"]):
    for event in accumulator.Scalars(tag):
        print("scalar", repr(tag), event.step, event.value)
for tag in sorted(tags["tensors"]):
    for event in accumulator.Tensors(tag):
        values = [value.decode() for value in event.tensor_proto.string_val]
        print("text", repr(tag), event.step, values[0])
for tag in sorted(tags["histograms"]):
    for event in accumulator.Histograms(tag):
        value = event.histogram_value
        print("histogram", repr(tag), event.step, value.min, value.max, value.num, value.sum, list(value.bucket_limit), list(value.bucket))
