"""Trains the model of bench step in PyTorch on random tokens, and prints the median seconds of a step as JSON."""

import argparse
import contextlib
import json
import math
import time

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

ATTENTION = {"default": None, "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}

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


class LlamaLayer(nn.Module):
    """A layer with rotary positions, RMS norms, a gated MLP and a key head for each two heads."""

    def __init__(self, width, heads, seq):
        super().__init__()
        self.heads, self.size = heads, width // heads
        hidden = math.ceil(math.ceil(8 * width / 3) / 64) * 64
        self.norm_1 = nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, 2 * heads * self.size, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.norm_2 = nn.RMSNorm(width, eps=1e-5)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        frequencies = 10000.0 ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.arange(seq)[:, None] * frequencies
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def turned(self, heads):
        first, second = heads.chunk(2, dim=-1)
        cosine, sine = self.cosine.to(heads.dtype), self.sine.to(heads.dtype)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)

    def forward(self, hidden):
        batch, seq, width = hidden.shape
        qkv = self.qkv(self.norm_1(hidden)).view(batch, seq, 2 * self.heads, self.size).transpose(1, 2)
        query, key, value = qkv.split([self.heads, self.heads // 2, self.heads // 2], dim=1)
        attended = functional.scaled_dot_product_attention(
            self.turned(query), self.turned(key), value, is_causal=True, enable_gqa=True
        )
        hidden = hidden + self.projection(attended.transpose(1, 2).reshape(batch, seq, width))
        gate, up = self.gate_up(self.norm_2(hidden)).chunk(2, dim=-1)
        return hidden + self.down(functional.silu(gate) * up)


class Model(nn.Module):
    """A GPT, or a Llama, whose output head is its token embedding."""

    def __init__(self, sizes):
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        width, heads, seq = sizes.hidden_size, sizes.num_attention_heads, sizes.seq_length
        if sizes.model_family == "llama":
            self.positions = None
            layers = (LlamaLayer(width, heads, seq) for _ in range(sizes.num_layers))
            self.norm = nn.RMSNorm(width, eps=1e-5)
        else:
            self.positions = nn.Embedding(seq, width)
            layers = (Layer(width, heads) for _ in range(sizes.num_layers))
            self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*layers)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        hidden = self.tokens(ids)
        if self.positions is not None:
            hidden = hidden + self.positions.weight[: ids.shape[1]]
        return self.loss(self.layers(hidden), targets)

    def loss(self, hidden, targets):
        logits = functional.linear(self.norm(hidden), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def compile_parts(self):
        """Compiles a layer, of which all others are copies, and the loss: as fast as the whole, and compiled sooner."""
        for layer in self.layers:
            layer.compile()
        self.loss = torch.compile(self.loss)


def attention_that_runs(sizes):
    """Runs attention once, forward and backward, and returns the name of the implementation."""
    shape = (sizes.micro_batch_size, sizes.num_attention_heads, sizes.seq_length)
    dtype = torch.bfloat16 if sizes.dtype == "bf16" else torch.float32
    heads = torch.randn(
        3, *shape, sizes.hidden_size // sizes.num_attention_heads, dtype=dtype, device=sizes.device, requires_grad=True
    )
    functional.scaled_dot_product_attention(*heads, is_causal=True).sum().backward()
    chosen = SDPBackend(torch._fused_sdp_choice(*heads, is_causal=True))
    return chosen.name.lower().removesuffix("_attention")


def train(sizes, micro_batches, model, optimizer):
    """Returns the median seconds of a step of `micro_batches` micro-batches, whose gradients are added up."""
    wait = torch.cuda.synchronize if sizes.device == "cuda" else lambda: None
    cast = torch.autocast(sizes.device, dtype=torch.bfloat16, enabled=sizes.dtype == "bf16")
    seconds = []
    for _ in range(sizes.steps):
        texts = torch.randint(sizes.vocab_size, (micro_batches, sizes.micro_batch_size, sizes.seq_length + 1))
        texts = texts.to(sizes.device)
        wait()
        start = time.perf_counter()
        for text in texts:
            with cast:
                loss = model(text[:, :-1], text[:, 1:]) / micro_batches
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        wait()
        seconds.append(time.perf_counter() - start)
    counted = sorted(seconds[sizes.warmup :])
    return counted[len(counted) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in SIZES.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    parser.add_argument("--micro-batches", default="1", help="per step: numbers with commas between them")
    parser.add_argument("--attention", default="default", choices=ATTENTION)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--model-family", default="gpt", choices=["gpt", "llama"])
    parser.add_argument("--compile", action="store_true")
    sizes = parser.parse_args()
    torch.set_num_threads(sizes.threads)
    if sizes.device == "cuda":
        # TF32, as burn's products of f32.
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    kernel = ATTENTION[sizes.attention]
    with contextlib.nullcontext() if kernel is None else sdpa_kernel(kernel):
        try:
            attention = attention_that_runs(sizes)
        except RuntimeError as error:
            # Anything else, such as too little memory, is a failure.
            if kernel is None or "No available kernel" not in str(error):
                raise
            print(json.dumps({"unavailable": str(error).splitlines()[0]}))
            return
        with torch.device(sizes.device):
            model = Model(sizes)
        if sizes.compile:
            model.compile_parts()
        optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=sizes.device == "cuda")
        seconds = [train(sizes, int(number), model, optimizer) for number in sizes.micro_batches.split(",")]
    print(json.dumps({"attention": attention, "step_seconds": seconds}))


if __name__ == "__main__":
    main()
