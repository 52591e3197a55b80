"""Computes the logits of a GPT-2 in Hugging Face's files with PyTorch, to compare with this project's.

    python huggingface_gpt2.py FOLDER TOKENS LOGITS [--again FOLDER]

FOLDER has config.json and model.safetensors, or several such files and
model.safetensors.index.json. TOKENS is a safetensors file with `tokens`, integers
of shape [batch, seq]. LOGITS is written with `plain`, [batch, seq, vocabulary]: those
of a GPT-2 written out in plain PyTorch below, in f64; and, where transformers can be
imported, with `transformers`: those of GPT2LMHeadModel.from_pretrained(FOLDER), in
f32. With --again, transformers also writes the model that it has read into another
folder, in several files.

Prints one line of JSON: the versions used, and the largest difference between the two.
"""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

try:
    import transformers
except ImportError:
    transformers = None

PREFIX = "transformer."


def read_tensors(folder):
    """Every tensor of the folder, in f64; with several files, each from the file that the index names."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        tensors = load_file(folder / "model.safetensors")
    else:
        weight_map = json.loads(index.read_text())["weight_map"]
        files = {name: load_file(folder / name) for name in set(weight_map.values())}
        assert sum(map(len, files.values())) == len(weight_map), "a tensor is in two files, or not in the index"
        tensors = {name: files[file][name] for name, file in weight_map.items()}
    return {name: tensor.double() for name, tensor in tensors.items()}


def attention(x, n_heads, inner, outer):
    batch, seq, width = x.shape
    fused = x @ inner[0] + inner[1]
    q, k, v = (part.view(batch, seq, n_heads, -1).transpose(1, 2) for part in fused.split(width, dim=2))
    scores = q @ k.transpose(2, 3) / (width // n_heads) ** 0.5
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, float("-inf")).softmax(dim=3) @ v
    return mixed.transpose(1, 2).reshape(batch, seq, width) @ outer[0] + outer[1]


def plain_logits(config, tensors, tokens):
    """GPT-2 from its description: no class of PyTorch or transformers that knows of GPT-2. Weights are [in, out]."""
    assert config["model_type"] == "gpt2" and config["activation_function"] == "gelu_new"
    used = set()

    def tensor(name, prefix=PREFIX):
        used.add(prefix + name)
        return tensors[prefix + name]

    def pair(name):
        return tensor(f"{name}.weight"), tensor(f"{name}.bias")

    def norm(x, name):
        weight, bias = pair(name)
        return F.layer_norm(x, (config["n_embd"],), weight, bias, config["layer_norm_epsilon"])

    embedding = tensor("wte.weight")
    assert embedding.shape == (config["vocab_size"], config["n_embd"]), embedding.shape
    x = embedding[tokens] + tensor("wpe.weight")[: tokens.shape[1]]
    for i in range(config["n_layer"]):
        block = f"h.{i}"
        inner, outer = pair(f"{block}.attn.c_attn"), pair(f"{block}.attn.c_proj")
        x = x + attention(norm(x, f"{block}.ln_1"), config["n_head"], inner, outer)
        (weight, bias), (back, back_bias) = pair(f"{block}.mlp.c_fc"), pair(f"{block}.mlp.c_proj")
        x = x + F.gelu(norm(x, f"{block}.ln_2") @ weight + bias, approximate="tanh") @ back + back_bias
    head = embedding if config["tie_word_embeddings"] else tensor("lm_head.weight", "")
    logits = norm(x, "ln_f") @ head.T
    assert used == set(tensors), f"not used: {sorted(set(tensors) - used)}"
    return logits


def transformers_logits(folder, tokens, again):
    model, report = transformers.GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    # Whatever the report has, a tensor is missing, left over or of another shape.
    assert not any(report.values()), f"from_pretrained reports {report}"
    if again is not None:
        model.save_pretrained(again, max_shard_size="20KB")
    return model.eval().float()(tokens).logits


def main():
    parser = argparse.ArgumentParser()
    for name in ["folder", "tokens", "logits"]:
        parser.add_argument(name, type=Path)
    parser.add_argument("--again", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    config = json.loads((arguments.folder / "config.json").read_text())
    tokens = load_file(arguments.tokens)["tokens"].long()
    plain = plain_logits(config, read_tensors(arguments.folder), tokens)
    found = {"plain": plain.contiguous()}
    line = {"torch": torch.__version__, "transformers": None}
    if transformers is not None:
        theirs = transformers_logits(arguments.folder, tokens, arguments.again).double()
        found["transformers"] = theirs.contiguous()
        line |= {"transformers": transformers.__version__, "difference": (theirs - plain).abs().max().item()}
    save_file(found, arguments.logits)
    print(json.dumps(line))


if __name__ == "__main__":
    main()
