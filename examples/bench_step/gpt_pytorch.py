"""Trains the model of bench_step in PyTorch on random tokens, and prints the median seconds of a step as JSON."""

import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional

SIZES = {
    "num_layers": 6,
    "hidden_size": 384,
    "num_attention_heads": 6,
    "seq_length": 256,
    "micro_batch_size": 4,
    "vocab_size": 8192,
    "steps": 12,
    "warmup": 4,
    "threads": 2,
}


class Layer(nn.Module):
    """A pre-norm transformer layer with fused attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden):
        batch, seq, width = hidden.shape
        qkv = self.qkv(self.norm_1(hidden)).view(batch, seq, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.projection(attended.transpose(1, 2).reshape(batch, seq, width))
        return hidden + self.down(functional.gelu(self.up(self.norm_2(hidden)), approximate="tanh"))


class Model(nn.Module):
    """A GPT whose output head is its token embedding."""

    def __init__(self, sizes):
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.positions = nn.Embedding(sizes.seq_length, sizes.hidden_size)
        layers = (Layer(sizes.hidden_size, sizes.num_attention_heads) for _ in range(sizes.num_layers))
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(sizes.hidden_size)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        hidden = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        return functional.linear(self.norm(self.layers(hidden)), self.tokens.weight)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in SIZES.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--compile", action="store_true")
    sizes = parser.parse_args()
    is_cuda = sizes.device == "cuda"
    wait = torch.cuda.synchronize if is_cuda else lambda: None
    torch.set_num_threads(sizes.threads)
    if is_cuda:
        # TF32, as burn's products of f32.
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    model = Model(sizes).to(sizes.device)
    forward = torch.compile(model) if sizes.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=is_cuda)
    cast = torch.autocast(sizes.device, dtype=torch.bfloat16, enabled=sizes.dtype == "bf16")
    seconds = []
    for _ in range(sizes.steps):
        text = torch.randint(sizes.vocab_size, (sizes.micro_batch_size, sizes.seq_length + 1))
        text = text.to(sizes.device)
        wait()
        start = time.perf_counter()
        with cast:
            logits = forward(text[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        wait()
        seconds.append(time.perf_counter() - start)
    counted = sorted(seconds[sizes.warmup :])
    print(json.dumps({"step_seconds": counted[len(counted) // 2], "loss": loss.item()}))


main()
