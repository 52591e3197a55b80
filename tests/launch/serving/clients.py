"""Asks a server as the `openai` package and lm-evaluation-harness do, and compares with transformers.

Usage: clients.py text_generation_server [MODEL]. Without the folder of a model, one is made by transformers.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import openai

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<s>", "</s>", "<|user|>", "<|assistant|>"]


def make_model(folder: Path) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={text: token for token, text in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    saved = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE)
    saved.save_pretrained(folder, save_jinja_files=False)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=260, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=256, eos_token_id=257, initializer_range=0.3,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def serve(program: str, folder: Path) -> tuple[subprocess.Popen, str]:
    command = [program, "--port", "0", "--load", str(folder), "--served-model-name", "m"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        print(line, end="")
        if " at http://" in line:
            return server, line.split(" at ")[1].strip()
    raise SystemExit("the server does not start")


def ask_by_openai(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["m"] and client.models.retrieve("m").id == "m"

    asked = dict(model="m", prompt="ab", max_tokens=8, seed=3, logprobs=2)
    whole = client.completions.create(**asked, echo=True, n=2, frequency_penalty=0.1, logit_bias={"5": -1})
    assert len(whole.choices) == 2 and all(choice.text.startswith("ab") for choice in whole.choices)
    assert whole.choices[0].logprobs.token_logprobs[0] is None
    one = client.completions.create(**asked).choices[0]
    streamed = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(piece.choices[0].text for piece in streamed[:-1]) == one.text
    assert streamed[-1].usage.completion_tokens == len(one.logprobs.tokens)
    extra = {"min_p": 0, "top_k": -1, "skip_special_tokens": True, "a_field_of_a_client": 1}
    assert client.completions.create(**asked, extra_body=extra).choices[0].text == one.text

    messages = [{"role": "user", "content": [{"type": "text", "text": "ab"}]}]
    asked = dict(model="m", messages=messages, max_completion_tokens=8, seed=3, logprobs=True, top_logprobs=2)
    one = client.chat.completions.create(**asked, response_format={"type": "text"}, tool_choice="none")
    choice = one.choices[0]
    tokens = choice.logprobs.content
    assert one.usage.prompt_tokens == 5 and one.usage.completion_tokens == len(tokens)
    known = b"".join(bytes(token.bytes) for token in tokens if token.bytes is not None)
    assert known.decode(errors="replace") == choice.message.content, (known, choice)
    streamed = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(piece.choices[0].delta.content or "" for piece in streamed) == choice.message.content
    assert streamed[0].choices[0].delta.role == "assistant" and streamed[-1].choices[0].finish_reason
    back = messages + [choice.message.model_dump(), {"role": "user", "content": "c"}]
    assert client.chat.completions.create(model="m", messages=back, max_tokens=2).choices[0].message
    for wrong in [dict(extra_body={"max_token": 5}), dict(tool_choice="required", tools=[])]:
        try:
            client.chat.completions.create(**asked, **wrong)
        except openai.BadRequestError as error:
            assert "max_token" in error.message or "tool_choice" in error.message
        else:
            raise AssertionError(wrong)


def ask_by_harness(url: str, folder: Path, work: Path) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    lines = [{"q": f"{word} a", "choices": [" b", " cd", " é"], "gold": number % 3} for number, word in enumerate("xyzuv")]
    (work / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    common = f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {work}/data.jsonl\ntest_split: test\ndoc_to_text: '{{{{q}}}}'\n"
    (work / "choice.yaml").write_text(
        f"task: choice\n{common}output_type: multiple_choice\ndoc_to_choice: '{{{{choices}}}}'\ndoc_to_target: gold\n"
    )
    (work / "continued.yaml").write_text(
        f"task: continued\n{common}output_type: generate_until\ndoc_to_target: '{{{{choices[gold]}}}}'\n"
        "generation_kwargs:\n  until: ['q']\n  max_gen_toks: 12\n  do_sample: false\n"
        "metric_list:\n  - metric: exact_match\n"
    )

    def evaluate(model: str, arguments: str, tasks: list[str], **more):
        found = lm_eval.simple_evaluate(
            model=model, model_args=arguments, tasks=tasks, task_manager=TaskManager(include_path=str(work)),
            log_samples=True, bootstrap_iters=0, **more,
        )
        return {task: [sample["resps"] for sample in found["samples"][task]] for task in tasks}

    api = f"model=m,tokenizer_backend=huggingface,tokenizer={folder},max_length=256"
    theirs = f"pretrained={folder},dtype=float32,device=cpu"
    tasks = ["choice", "continued"]
    ours = evaluate("local-completions", f"{api},base_url={url}/v1/completions", tasks)
    expected = evaluate("hf", theirs, tasks)
    for left, right in zip(ours["choice"], expected["choice"], strict=True):
        for [ours_one], [their_one] in zip(left, right, strict=True):
            assert math.isclose(float(ours_one[0]), float(their_one[0]), abs_tol=1e-4), (ours_one, their_one)
            assert str(ours_one[1]) == str(their_one[1])
    assert ours["continued"] == expected["continued"], (ours, expected)
    chats = evaluate(
        "local-chat-completions", f"{api},base_url={url}/v1/chat/completions", ["continued"], apply_chat_template=True
    )
    expected = evaluate("hf", theirs, ["continued"], apply_chat_template=True)
    assert chats == expected, (chats, expected)


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        folder = Path(sys.argv[2]) if len(sys.argv) > 2 else work / "model"
        if len(sys.argv) < 3:
            make_model(folder)
        server, url = serve(sys.argv[1], folder)
        try:
            ask_by_openai(url)
            print("openai: the answers are as they should be")
            ask_by_harness(url, folder, work)
            print("lm-evaluation-harness: the scores and texts are those of transformers")
        finally:
            server.terminate()
            server.wait()


main()
