"""Trains the GPT of bench step in PyTorch on several ranks over Gloo, in one of four modes, and prints JSON.

  ddp             DistributedDataParallel: every rank holds everything (stage 0 of ZeRO)
  zero1           ZeroRedundancyOptimizer around it: a rank holds some parameters' moments (stage 1)
  fsdp-no-reshard FSDP2's fully_shard with reshard_after_forward=False: a rank holds shards of parameters, gradients and
                  moments between steps; the parameters are gathered once per step and kept, the gradients
                  reduce-scattered in each micro-batch (stage 2)
  fsdp            the same with reshard_after_forward=True: a layer's parameters are gathered for each of its passes and
                  freed after it (stage 3)

Every layer is a unit of FSDP, and the rest of the model another, which PyTorch's default does not free after its
forward pass: its backward pass comes next. The tokens are random, the optimizer is AdamW, fused, with one learning
rate; biases and norms do not decay. This process starts the ranks, on loopback, twice: for the time, and for the
memory. The last line has

  step_seconds  the median over the counted steps of the slowest rank's time, without making the tokens
  peak_bytes    the most that a rank had in memory (VmHWM without pages of files) in two steps after the warm-up, less
                what it had before it made the model. By then it has trained a tiny model in the same mode, as libraries
                keep memory. The allocator of these ranks gives back what is freed (MALLOC_MMAP_THRESHOLD_), so that
                this is about what is allocated; with glibc's default FSDP has up to twice that in memory
  loss          of the last counted step
"""

import argparse
import contextlib
import ctypes
import datetime
import gc
import json
import os
import pathlib
import signal
import socket
import statistics
import sys
import time

import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

# The ranks import this file too. The sources' folders stay as they are.
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "step"))
from gpt_pytorch import Model  # noqa: E402

MODES = ["ddp", "zero1", "fsdp-no-reshard", "fsdp"]
COUNTS = {
    "num-layers": 4,
    "hidden-size": 256,
    "num-attention-heads": 4,
    "seq-length": 128,
    "max-position-embeddings": 128,
    "padded-vocab-size": 384,
    "micro-batch-size": 8,
    "num-micro-batches": 1,
    "world-size": 2,
    "threads": 1,
    "steps": 12,
    "warmup": 3,
}
NUMBERS = {
    "lr": 2e-3,
    "weight-decay": 0.1,
    "adam-beta1": 0.9,
    "adam-beta2": 0.95,
    "adam-eps": 1e-8,
    "clip-grad": 1.0,
    "timeout-secs": 600.0,
}


def die_with_parent(parent):
    """Lets the kernel kill this process when the one that started it ends, however that ends."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that started this one has ended")


def resident_bytes(name):
    """What Linux says of this process's memory (VmRSS, or VmHWM for its peak), without pages of files such as code."""
    with open("/proc/self/status") as status:
        sizes = dict(line.split(":", 1) for line in status)
    return 1024 * (int(sizes[name].split()[0]) - int(sizes["RssFile"].split()[0]))


def restart_peak():
    """Gives freed memory back, and makes the peak what is resident now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def make_model(flags):
    sizes = argparse.Namespace(
        model_family="gpt",
        num_layers=flags.num_layers,
        hidden_size=flags.hidden_size,
        num_attention_heads=flags.num_attention_heads,
        seq_length=flags.max_position_embeddings,
        vocab_size=flags.padded_vocab_size,
    )
    return Model(sizes)


def prepare(model, flags):
    """The model of this mode, and its optimizer."""
    if flags.mode.startswith("fsdp"):
        reshards = flags.mode == "fsdp"
        for layer in model.layers:
            fully_shard(layer, reshard_after_forward=reshards)
        fully_shard(model, reshard_after_forward=None if reshards else False)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": flags.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    options = {"lr": flags.lr, "betas": (flags.adam_beta1, flags.adam_beta2), "eps": flags.adam_eps, "fused": True}
    if flags.mode == "zero1":
        optimizer = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, parameters_as_bucket_view=True, **options)
    else:
        optimizer = torch.optim.AdamW(groups, **options)
    return model, optimizer


def backward_pass(model, batch, is_last, flags):
    """Both passes of a micro-batch; returns its share of the loss."""
    synchronizes = contextlib.nullcontext()
    if flags.mode == "fsdp-no-reshard":
        # Parameters that a next micro-batch reads stay.
        model.set_reshard_after_backward(is_last)
    elif not flags.mode.startswith("fsdp") and not is_last:
        synchronizes = model.no_sync()
    with synchronizes:
        logits = model(batch[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) / flags.num_micro_batches
        loss.backward()
    return loss.detach()


def step(model, optimizer, batches, flags):
    """Trains on a global batch; returns this rank's loss."""
    losses = [backward_pass(model, batch, batch is batches[-1], flags) for batch in batches]
    if flags.clip_grad > 0:
        nn.utils.clip_grad_norm_(model.parameters(), flags.clip_grad)
    optimizer.step()
    optimizer.zero_grad()
    return sum(losses)


def random_batches(flags):
    """A micro-batch of samples and their next tokens for each pass of a step."""
    shape = (flags.micro_batch_size, flags.seq_length + 1)
    return [torch.randint(flags.padded_vocab_size, shape) for _ in range(flags.num_micro_batches)]


def rehearse(flags):
    """Trains a tiny model for a step."""
    tiny = argparse.Namespace(**vars(flags))
    tiny.num_layers, tiny.num_attention_heads, tiny.hidden_size, tiny.padded_vocab_size = 1, 1, 8, 8
    tiny.micro_batch_size, tiny.num_micro_batches = 1, 1
    step(*prepare(make_model(tiny), tiny), random_batches(tiny), tiny)


def connect(rank, meeting, flags):
    die_with_parent(meeting.parent)
    torch.set_num_threads(flags.threads)
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{meeting.port}",
        rank=rank,
        world_size=flags.world_size,
        timeout=datetime.timedelta(seconds=flags.timeout_secs),
    )


def largest(value):
    """The largest of all ranks' values."""
    values = torch.tensor([value], dtype=torch.float64)
    distributed.all_reduce(values, distributed.ReduceOp.MAX)
    return values.item()


def run_rank(rank, meeting, flags, results):
    connect(rank, meeting, flags)
    rehearse(flags)
    restart_peak()
    before = resident_bytes("VmRSS")
    torch.manual_seed(1)
    model, optimizer = prepare(make_model(flags), flags)
    torch.manual_seed(2 + rank)
    seconds = []
    for index in range(flags.warmup + flags.steps):
        if index == flags.warmup:
            restart_peak()
        batches = random_batches(flags)
        start = time.perf_counter()
        loss = step(model, optimizer, batches, flags)
        seconds.append(largest(time.perf_counter() - start))
    peak = largest(resident_bytes("VmHWM") - before)
    distributed.all_reduce(loss)
    if rank == 0:
        results.put((statistics.median(seconds[flags.warmup :]), int(peak), loss.item() / flags.world_size))
    distributed.barrier()
    distributed.destroy_process_group()


def run_ranks(flags, deadline):
    """Trains on all ranks; returns the median seconds of a step, the peak bytes and the loss."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = argparse.Namespace(port=free.getsockname()[1], parent=os.getpid())
    results = multiprocessing.get_context("spawn").SimpleQueue()
    ranks = multiprocessing.spawn(run_rank, (meeting, flags, results), flags.world_size, join=False)
    # Raises what a rank raised, after it has ended the others.
    while not ranks.join(timeout=1.0):
        if time.monotonic() > deadline:
            for process in ranks.processes:
                process.kill()
                process.join()
            sys.exit(f"the {flags.world_size} ranks of mode {flags.mode} took longer than {flags.timeout_secs} s")
    return results.get()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--parent", type=int, default=os.getppid(), help="the process whose end ends this one")
    for name, default in COUNTS.items():
        parser.add_argument("--" + name, type=int, default=default)
    for name, default in NUMBERS.items():
        parser.add_argument("--" + name, type=float, default=default)
    flags = parser.parse_args()
    for name in COUNTS:
        value = getattr(flags, name.replace("-", "_"))
        if value < (0 if name == "warmup" else 1):
            parser.error(f"--{name} is too small: {value}")
    die_with_parent(flags.parent)
    deadline = time.monotonic() + flags.timeout_secs
    # What the ranks inherit: loopback, and the number of threads in libraries of matrix products.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(flags.threads)
    seconds, _, loss = run_ranks(flags, deadline)
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(64 * 1024)
    flags.steps = 2
    _, peak, _ = run_ranks(flags, deadline)
    print(json.dumps({"step_seconds": seconds, "peak_bytes": peak, "loss": loss}))


if __name__ == "__main__":
    main()
