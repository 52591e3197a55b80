"""The operations of bench_kernels in PyTorch.

Reads a line of JSON for each case: operation, pass and sizes; answers with a line: the median seconds of a call and by which
of PyTorch's ways it was, or an error. Its first line says its version and device. Started by bench_kernels.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
MAX_CALLS = 200
# Keeps a GPU busy while the host queues calls; about 10 ms.
BUSY_CYCLES = 20_000_000


class Bench:
    def __init__(self, arguments):
        self.device = arguments.device
        self.dtype = DTYPES[arguments.dtype]
        self.is_compiled = not arguments.no_compile
        self.samples = arguments.samples
        self.sample_seconds = arguments.sample_seconds
        self.is_cuda = self.device == "cuda"

    def random(self, *shape, dtype=None):
        return torch.randn(*shape, device=self.device, dtype=dtype or self.dtype)

    def leaf(self, *shape):
        return self.random(*shape).requires_grad_()

    def wait(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    def sample(self, run, calls):
        """Returns the seconds per call, over `calls` calls."""
        self.wait()
        if not self.is_cuda:
            start = time.perf_counter()
            for _ in range(calls):
                run()
            return (time.perf_counter() - start) / calls
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda._sleep(BUSY_CYCLES)
        events[0].record()
        for _ in range(calls):
            run()
        events[1].record()
        events[1].synchronize()
        return events[0].elapsed_time(events[1]) / 1e3 / calls

    def seconds(self, run):
        """Returns the median seconds of a call."""
        for _ in range(3):
            run()
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        once = max(time.perf_counter() - start, 1e-7)
        calls = max(1, min(MAX_CALLS, round(self.sample_seconds / once)))
        return statistics.median(self.sample(run, calls) for _ in range(self.samples))

    def pass_of(self, name, forward, leaves, gradients):
        """Returns the call of a pass."""
        if name != "backward":
            return forward
        outputs = forward()

        def run():
            return torch.autograd.grad(outputs, leaves, gradients, retain_graph=True)

        return run

    def measure(self, request):
        """Returns the fastest way's seconds and name."""
        make = getattr(self, request["operation"])
        ways = {}
        for way in ("eager", "compiled"):
            if way == "compiled" and not self.is_compiled:
                continue
            case = make(request)
            compiles = case.pop("compiles", False)
            if way == "compiled" and not compiles:
                continue
            name = case.pop("way", way)
            forward = case["forward"]
            if way == "compiled":
                torch._dynamo.reset()
                forward = torch.compile(forward, dynamic=False)
            run = self.pass_of(request["pass"], forward, case.get("leaves"), case.get("gradients"))
            ways[name] = self.seconds(run)
            del run, case, forward
        return min((seconds, name) for name, seconds in ways.items())

    def answer(self, request):
        try:
            with sdpa_kernel(self.attention_backend()[0]):
                seconds, way = self.measure(request)
            return {"seconds": seconds, "way": way}
        except Exception as error:
            lines = str(error).strip().splitlines()
            return {"error": f"{type(error).__name__}: {lines[0][:200] if lines else ''}"}
        finally:
            if self.is_cuda:
                torch.cuda.empty_cache()

    def attention_backend(self):
        # Flash attention on GPUs has no f32.
        if self.is_cuda and self.dtype == torch.float32:
            return SDPBackend.EFFICIENT_ATTENTION, "memory-efficient"
        return SDPBackend.FLASH_ATTENTION, "flash"

    def layer_norm(self, request):
        rows, columns = request["rows"], request["columns"]
        x, weight, bias = self.leaf(rows, columns), self.leaf(columns), self.leaf(columns)

        def forward():
            return F.layer_norm(x, (columns,), weight, bias)

        return {"forward": forward, "leaves": [x, weight, bias], "gradients": self.random(rows, columns)}

    def rms_norm(self, request):
        rows, columns = request["rows"], request["columns"]
        x, weight = self.leaf(rows, columns), self.leaf(columns)

        def forward():
            return F.rms_norm(x, (columns,), weight, 1e-5)

        return {
            "forward": forward,
            "leaves": [x, weight],
            "gradients": self.random(rows, columns),
            "compiles": True,
        }

    def add_norm(self, request):
        rows, columns = request["rows"], request["columns"]
        x, residual = self.leaf(rows, columns), self.leaf(rows, columns)
        addend, weight, bias = self.leaf(columns), self.leaf(columns), self.leaf(columns)

        def forward():
            total = residual + F.dropout(x + addend, 0.1)
            return total, F.layer_norm(total, (columns,), weight, bias)

        return {
            "forward": forward,
            "leaves": [x, residual, addend, weight, bias],
            "gradients": [self.random(rows, columns), self.random(rows, columns)],
            "compiles": True,
        }

    def bias_dropout_add(self, request):
        rows, columns = request["rows"], request["columns"]
        x, residual, addend = self.leaf(rows, columns), self.leaf(rows, columns), self.leaf(columns)

        def forward():
            return residual + F.dropout(x + addend, 0.1)

        return {
            "forward": forward,
            "leaves": [x, residual, addend],
            "gradients": self.random(rows, columns),
            "compiles": True,
        }

    def bias_gelu(self, request):
        rows, columns = request["rows"], request["columns"]
        x, bias = self.leaf(rows, columns), self.leaf(columns)

        def forward():
            return F.gelu(x + bias, approximate="tanh")

        return {
            "forward": forward,
            "leaves": [x, bias],
            "gradients": self.random(rows, columns),
            "compiles": True,
        }

    def swiglu(self, request):
        rows, columns = request["rows"], request["columns"]
        x = self.leaf(rows, 2 * columns)

        def forward():
            gate, up = x.chunk(2, dim=1)
            return F.silu(gate) * up

        return {"forward": forward, "leaves": [x], "gradients": self.random(rows, columns), "compiles": True}

    def softmax(self, request):
        batch, heads, seq = request["batch"], request["heads"], request["seq"]
        is_causal = request["is_causal"]
        x = self.leaf(batch, heads, seq, seq)
        later = torch.ones(seq, seq, dtype=torch.bool, device=self.device).triu(1)

        def forward():
            scores = x * 0.125
            if is_causal:
                scores = scores.masked_fill(later, -torch.inf)
            return scores.softmax(-1)

        return {
            "forward": forward,
            "leaves": [x],
            "gradients": self.random(batch, heads, seq, seq),
            "compiles": True,
        }

    def cross_entropy(self, request):
        rows, columns = request["rows"], request["columns"]
        x = self.leaf(rows, columns)
        targets = torch.randint(columns, (rows,), device=self.device)

        def forward():
            return F.cross_entropy(x, targets, reduction="none")

        gradients = torch.full((rows,), 1.0 / rows, device=self.device, dtype=self.dtype)
        return {"forward": forward, "leaves": [x], "gradients": gradients, "compiles": True}

    def adamw(self, request):
        # Parameters, gradients and moments in f32: the same number of bytes as ours moves, in any type.
        parameter = self.random(request["parameters"], dtype=torch.float32).requires_grad_()
        parameter.grad = self.random(request["parameters"], dtype=torch.float32)
        optimizer = torch.optim.AdamW([parameter], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        return {"forward": optimizer.step}

    def l2_norm(self, request):
        gradient = self.random(request["parameters"])
        return {"forward": lambda: torch.linalg.vector_norm(gradient, dtype=torch.float32)}

    def flash_attention(self, request):
        batch, heads, seq, d_head = (request[name] for name in ("batch", "heads", "seq", "d_head"))
        leaves = [self.leaf(batch, seq, heads, d_head) for _ in range(3)]
        dropout = request["dropout"]

        def forward():
            query, key, value = (leaf.transpose(1, 2) for leaf in leaves)
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=dropout)

        gradients = self.random(batch, seq, heads, d_head).transpose(1, 2)
        way = self.attention_backend()[1]
        return {"forward": forward, "leaves": leaves, "gradients": gradients, "way": way}

    def linear(self, request):
        rows, d_input, d_output = request["rows"], request["d_input"], request["d_output"]
        x, weight, bias = self.leaf(rows, d_input), self.leaf(d_output, d_input), self.leaf(d_output)

        def forward():
            return F.linear(x, weight, bias)

        return {"forward": forward, "leaves": [x, weight, bias], "gradients": self.random(rows, d_output)}

    def product(self, request):
        a, b = (self.random(request["size"], request["size"]) for _ in range(2))
        return {"forward": lambda: a @ b}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--dtype", choices=list(DTYPES), required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--sample-seconds", type=float, required=True)
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    # A compiled forward pass may otherwise free what a second backward pass needs.
    torch._functorch.config.donated_buffer = False
    # What libraries print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "the CPU"
    print(json.dumps({"version": torch.__version__, "device": name}), file=answers, flush=True)
    bench = Bench(arguments)
    for line in sys.stdin:
        print(json.dumps(bench.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
