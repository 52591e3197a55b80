"""Writes an event file with the real tensorboard package: the fixture that this crate's encoder is compared with.

    pip install tensorboard
    python write_fixture.py fixtures/events
"""

import sys

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

TEXT = "Once upon a time, Grüße, 𝄞."

with open(sys.argv[1], "wb") as file:
    writer = RecordWriter(file)

    def write(wall_time, **fields):
        writer.write(Event(wall_time=wall_time, **fields).SerializeToString())

    write(1700000000.25, file_version="brain.Event:2")
    scalars = [("lm loss", 2.5), ("learning-rate", 1.5e-4), ("zero", 0.0), ("nan", float("nan")), ("inf", float("inf"))]
    write(1700000002.0, step=3, summary=Summary(value=[Summary.Value(tag=t, simple_value=v) for t, v in scalars]))
    write(1700000003.0, step=0, summary=Summary(value=[Summary.Value(tag="lm loss vs samples", simple_value=-1.25)]))
    write(1700000004.0, step=2**40, summary=Summary(value=[Summary.Value(tag="batch-size vs samples", simple_value=16)]))
    tensor = TensorProto(dtype=DT_STRING, string_val=[TEXT.encode()], tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]))
    text = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"), data_class=DATA_CLASS_TENSOR)
    write(1700000005.0, step=4, summary=Summary(value=[Summary.Value(tag="samples", tensor=tensor, metadata=text)]))
    histogram = HistogramProto(min=1, max=4, num=4, sum=10, sum_squares=30, bucket_limit=[2.5, 4], bucket=[2, 2])
    write(1700000006.0, step=5, summary=Summary(value=[Summary.Value(tag="lengths", histo=histogram)]))
    writer.close()
