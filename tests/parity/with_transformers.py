"""Has transformers make, read and continue models in Hugging Face's files, to compare with this project's programs.

    with_transformers.py models TABLES FOLDER
    with_transformers.py logits FOLDER...
    with_transformers.py generate PROMPT LENGTH FOLDER...

`models` takes the tables of settings as JSON, compares their names and defaults with the classes of transformers, and
makes models of random weights below FOLDER: of each type of models one of default settings, one with each setting that
is honoured away from its default, one with all settings at once that should have no effect, and combinations. `logits`
takes models that are there. Next to each model is `expected.safetensors` then: tokens, and the logits of transformers.
`generate` prints the greedy continuations of a text, as JSON.
"""

import inspect
import json
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

BATCH, SEQ, TOKENS = 2, 14, 60
# Sizes with which the values of the tables are valid; what is left out has its default.
USUAL = {"num_hidden_layers": 2, "intermediate_size": 40, "vocab_size": 62}
LLAMA = USUAL | {"hidden_size": 128}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "vocab_size": 62}
SIZES = {
    "gpt2": {"n_embd": 48, "n_layer": 2, "vocab_size": 62},
    "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA | {"head_dim": 8},
    "gpt_neox": USUAL | {"hidden_size": 256, "num_attention_heads": 16},
    "bloom": {"vocab_size": 62},
    "bert": USUAL | {"hidden_size": 48}, "megatron-bert": USUAL | {"hidden_size": 64},
    "t5": T5, "mt5": T5,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LENGTH = {"original_max_position_embeddings": 32}
LLAMA3 = LENGTH | {"rope_type": "llama3", "factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
WINDOWS = {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 5}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
COMBINATIONS = {
    "gpt2": [UNTIED | {"n_inner": 36, "layer_norm_epsilon": 0.01, "activation_function": "gelu_fast"}],
    "llama": [TIED | {"head_dim": 6, "num_key_value_heads": 4, "rope_scaling": LLAMA3},
              {"num_key_value_heads": 1, "rope_scaling": YARN | {"truncate": False}, "rms_norm_eps": 0.01}],
    "mistral": [{"sliding_window": 5, "head_dim": 6, "rope_scaling": YARN},
                {"sliding_window": None, "rope_theta": 300.0}],
    "qwen2": [TIED | WINDOWS | {"rope_scaling": YARN}, {"num_key_value_heads": 1, "rms_norm_eps": 0.01},
              WINDOWS | {"max_window_layers": 2, "rope_theta": 300.0}],
    "qwen3": [WINDOWS | {"head_dim": 6, "num_key_value_heads": 4}, TIED | {"rope_scaling": YARN}],
    "gpt_neox": [TIED | {"use_parallel_residual": False, "rotary_pct": 0.5, "hidden_act": "gelu_new"},
                 {"rotary_pct": 1.0, "rotary_emb_base": 300, "layer_norm_eps": 0.01}],
    "bloom": [UNTIED | {"hidden_size": 66, "n_head": 6}, {"n_head": 1, "layer_norm_epsilon": 0.01}],
    "bert": [UNTIED | {"hidden_act": "gelu_new", "type_vocab_size": 3}],
    "megatron-bert": [UNTIED | {"hidden_act": "gelu_new", "layer_norm_eps": 0.01}],
    "t5": [UNTIED | {"feed_forward_proj": "gated-gelu", "num_decoder_layers": 1}],
    "mt5": [UNTIED | {"feed_forward_proj": "gated-gelu_new", "relative_attention_num_buckets": 8}],
}
# Settings that transformers 5 reads and this version does not.
NEWER = ["rope_parameters", "scale_decoder_outputs", "rope_theta of rope_scaling",
         "partial_rotary_factor of rope_scaling"]
# Values of settings without effect that do not take any.
ODD = {"early_stopping": True, "id2label": {"0": "a"}, "label2id": {"a": 0}, "num_labels": 1,
       "problem_type": "regression", "architectures": ["A"]}
# Settings of how transformers runs a model: in which types, by which implementation, returning what.
RUNNING = ["_attn_implementation_autoset", "_attn_implementation_internal", "attn_implementation", "auto_map", "dtype",
           "model_type", "output_attentions", "return_dict", "torch_dtype", "torchscript"]
# Parts of names of settings by which these logits are the same.
SILENT = ["drop", "initializer_range", "seq_length", "positions", "max_position", "use_sliding_window", "max_window"]


def class_of(model_type: str):
    if "bert" in model_type:
        return transformers.AutoModelForPreTraining
    return transformers.AutoModelForSeq2SeqLM if "t5" in model_type else transformers.AutoModelForCausalLM


def value_of(text: str):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def expect(model: torch.nn.Module, folder: Path) -> torch.Tensor:
    """Writes tokens, and the logits of all but padding."""
    torch.manual_seed(2)
    draw = lambda count=TOKENS: torch.randint(0, count, (BATCH, SEQ))
    batch, lengths = {"targets": draw()}, torch.tensor([SEQ, SEQ - 3])
    seen = (torch.arange(SEQ) < lengths[:, None]).long()
    if "t5" in model.config.model_type:
        batch |= {"encoder_tokens": draw(), "decoder_tokens": draw(), "lengths": lengths}
        inputs = {"input_ids": batch["encoder_tokens"], "attention_mask": seen}
        inputs |= {"decoder_input_ids": batch["decoder_tokens"]}
    elif "bert" in model.config.model_type:
        batch |= {"tokens": draw(), "token_types": draw(2), "lengths": lengths, "is_random": torch.tensor([1, 0])}
        inputs = {"input_ids": batch["tokens"], "attention_mask": seen, "token_type_ids": batch["token_types"]}
    else:
        batch |= {"tokens": draw()}
        inputs = {"input_ids": batch["tokens"]}
    with torch.no_grad():
        logits = model(**inputs)[0]
    if "token_types" in batch:
        logits = logits * seen[:, :, None]
    numbers = {name: tensor.int() for name, tensor in batch.items()}
    save_file(numbers | {"logits": logits.contiguous()}, folder / "expected.safetensors")
    return logits


def make(fields: dict, folder: Path, weights: Path | None = None) -> torch.Tensor:
    """Makes a model of random weights, or in the files of another one, and returns its logits.

    `config.json` has the settings given; those of a combination are as transformers writes them.
    """
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(fields))
    config = transformers.AutoConfig.from_pretrained(folder)
    model = class_of(fields["model_type"]).from_config(config).eval()
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        # Norms near 1, so that they count; the rest large enough that attention is not uniform.
        is_norm = parameter.dim() == 1 and name.endswith("weight")
        torch.nn.init.normal_(parameter, 1.0 if is_norm else 0.0, 0.2)
    if weights is None:
        model.save_pretrained(folder, max_shard_size="40KB")
        if not folder.name.startswith("combination"):
            (folder / "config.json").write_text(json.dumps(fields))
    else:
        for file in weights.glob("model*"):
            shutil.copy(file, folder)
    return expect(model, folder)


def check_table(model_type: str, keys: dict) -> list[str]:
    """Compares names, defaults and second names with those of the configuration's class."""
    config_class = type(transformers.AutoConfig.for_model(model_type))
    parameters = inspect.signature(config_class.__init__).parameters.values()
    own = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
    found = []
    for name, default in json.loads(json.dumps(transformers.PretrainedConfig().to_dict() | own)).items():
        key = keys.get(name)
        if key is None:
            found.append(f"{model_type}: {name}, {default!r} by default, is not in the table")
        elif key["effect"] != "Elsewhere" and "Means" not in key["effect"] and value_of(key["default"]) != default:
            found.append(f"{model_type}: {name} is {default!r} by default, and {key['default']} in the table")
    for name, of in config_class.attribute_map.items():
        if keys.get(name, {}).get("effect") != {"Means": of}:
            found.append(f"{model_type}: {name} is another name of {of}, and not so in the table")
    return found


def changes_of(model_type: str, keys: dict, rope: dict) -> dict:
    """What differs from the default model, by the settings that are tried so."""
    changes = {f"combination {number}": fields for number, fields in enumerate(COMBINATIONS[model_type])}
    for name, key in (keys | rope).items():
        effect, probe = key["effect"] if isinstance(key["effect"], dict) else {}, key["probe"]
        fields = {other: value_of(text) for other, text in key["with"]}
        if name in NEWER or (name, model_type) == ("rope_scaling", "gpt_neox"):
            continue
        for valid in effect.get("Only", [[]])[0][1:]:
            changes[f"{name}={valid}"] = {name: value_of(valid)}
        if "Means" in effect:
            of = rope[f"{effect['Means']} of rope_scaling"] if name in rope else keys[effect["Means"]]
            fields |= {other: value_of(text) for other, text in of["with"]} | {of["name"]: None}
            probe = of["probe"]
        if "Changes" in probe:
            fields |= {key["name"]: value_of(probe["Changes"])}
            length = LENGTH if fields.get("rope_type") == "llama3" else {}
            changes[name] = {"rope_scaling": length | fields} if name in rope else fields
    return changes


def make_models(tables: dict, folder: Path) -> list[str]:
    rope = {f"{key['name']} of rope_scaling": key for key in tables.pop("rope_scaling")}
    found = []
    for model_type, keys in tables.items():
        keys = {key["name"]: key for key in keys}
        found += check_table(model_type, keys)
        base, place = {"model_type": model_type} | SIZES[model_type], folder / model_type
        plain = make(base, place / "defaults")
        idle = {name: value_of(key["default"]) for name, key in keys.items()
                if key["effect"] in ("Idle", "Elsewhere") and name not in RUNNING}
        idle = {name: not value if value in (True, False) else ODD.get(name, 7) for name, value in idle.items()}
        logits = make(base | idle, place / "without_effect", place / "defaults")
        # Parts of a text that are computed one by one are rounded otherwise.
        if (logits - plain).norm() > 1e-6 * plain.norm():
            found.append(f"{model_type}: a setting that should have none has an effect")
        changes = changes_of(model_type, keys, rope if model_type == "llama" else {})
        for name, fields in changes.items():
            # A window of null is none.
            fields = {key: value for key, value in (base | fields).items() if value is not None or "window" in key}
            logits = make(fields, place / name)
            # Twice what the comparison allows.
            is_same = logits.shape == plain.shape and (logits - plain).norm() < 2e-5 * plain.norm()
            if is_same and "=" not in name and not any(part in name for part in SILENT):
                found.append(f"{model_type}: {name} changes no logits")
        print(f"{model_type}: {len(keys)} settings, {2 + len(changes)} models", flush=True)
    return found


def generate(folder: Path, prompt: str, length: int) -> tuple[str, list[int]]:
    """The text after a prompt, without its end, and its tokens."""
    model = read(folder).double()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    tokens = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
    found = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=length)
    found = found[0, tokens.shape[1]:].tolist()
    text = found[:-1] if found[-1] in model.generation_config.eos_token_id else found
    return tokenizer.decode(text, skip_special_tokens=True, clean_up_tokenization_spaces=False), found


def read(folder: Path) -> torch.nn.Module:
    """The model in a folder, which has all its tensors and no other."""
    [architecture] = json.loads((folder / "config.json").read_text())["architectures"]
    model, report = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), f"{folder}: from_pretrained reports {report}"
    return model.eval()


def main() -> None:
    torch.set_num_threads(1)
    print("torch", torch.__version__, "transformers", transformers.__version__, file=sys.stderr)
    command, first, *rest = sys.argv[1:]
    if command == "models":
        if found := make_models(json.loads(Path(first).read_text()), Path(rest[0])):
            raise SystemExit("\n".join(found))
    elif command == "generate":
        print(json.dumps([generate(Path(folder), first, int(rest[0])) for folder in rest[1:]]))
    else:
        for folder in map(Path, [first, *rest]):
            expect(read(folder), folder)


main()
