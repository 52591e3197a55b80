"""The operations of bench_flex in PyTorch.

Reads lines "OPERATION PASS SAMPLES" and answers each with a line of the samples' seconds. Started by bench_flex.
"""

import os
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(int(os.environ.get("BENCH_THREADS", "2")))
torch.manual_seed(1)

ROWS, MODEL, WIDE, VOCABULARY, PARAMETERS = (int(size) for size in sys.argv[1:6])
SCORES = [int(size) for size in sys.argv[6:9]]


def leaf(*shape):
    return torch.randn(*shape).requires_grad_()


def operations():
    x, residual, gradient = leaf(ROWS, MODEL), leaf(ROWS, MODEL), torch.randn(ROWS, MODEL)
    weight, bias, addend = leaf(MODEL), leaf(MODEL), leaf(MODEL)
    wide, wide_bias, wide_gradient = leaf(ROWS, WIDE), leaf(WIDE), torch.randn(ROWS, WIDE)
    both = leaf(ROWS, 2 * WIDE)
    batch, heads, seq = SCORES
    scores, scores_gradient = leaf(batch, heads, seq, seq), torch.randn(batch, heads, seq, seq)
    later = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    logits, targets = leaf(ROWS, VOCABULARY), torch.randint(VOCABULARY, (ROWS,))
    row_gradient = torch.full((ROWS,), 1.0 / ROWS)

    def hidden(p):
        return residual + F.dropout(x + addend, p)

    def add_norm(p):
        total = hidden(p)
        return total, F.layer_norm(total, (MODEL,), weight, bias)

    def swiglu():
        gate, up = both.chunk(2, dim=1)
        return F.silu(gate) * up

    def softmax():
        return (scores * 0.125).masked_fill(later, -torch.inf).softmax(-1)

    norm_leaves = [x, weight, bias]
    add_leaves = [x, residual, addend]
    return {
        "layer_norm": (lambda: F.layer_norm(x, (MODEL,), weight, bias), norm_leaves, gradient),
        "rms_norm": (lambda: F.rms_norm(x, (MODEL,), weight, 1e-5), [x, weight], gradient),
        "add_norm": (lambda: add_norm(0.0), [*add_leaves, weight, bias], [gradient, gradient]),
        "add_norm_dropout": (lambda: add_norm(0.1), [*add_leaves, weight, bias], [gradient, gradient]),
        "bias_dropout_add": (lambda: hidden(0.1), add_leaves, gradient),
        "bias_gelu": (lambda: F.gelu(wide + wide_bias, approximate="tanh"), [wide, wide_bias], wide_gradient),
        "swiglu": (swiglu, [both], wide_gradient),
        "softmax": (softmax, [scores], scores_gradient),
        "cross_entropy": (
            lambda: F.cross_entropy(logits, targets, reduction="none"),
            [logits],
            row_gradient,
        ),
    }


def main():
    table = operations()
    parameter = leaf(PARAMETERS)
    parameter.grad = torch.randn(PARAMETERS)
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, fused=True)

    def sum_of_squares():
        return parameter.grad.norm(2)

    for line in sys.stdin:
        name, which, samples = line.split()
        if name == "adamw":
            run = optimizer.step
        elif name == "sum_of_squares":
            run = sum_of_squares
        elif which == "forward":
            run = table[name][0]
        else:
            forward, leaves, gradient = table[name]
            output = forward()

            def run():
                return torch.autograd.grad(output, leaves, gradient, retain_graph=True)

        run()
        seconds = []
        for _ in range(int(samples)):
            start = time.perf_counter()
            result = run()
            seconds.append(time.perf_counter() - start)
            del result
        print(*seconds, flush=True)


main()
