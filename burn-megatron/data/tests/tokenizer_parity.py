"""What Hugging Face's `tokenizers` and Google's `sentencepiece` make of a corpus, for tests/tokenizer_parity.rs.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    python tokenizer_parity.py FOLDER BYTES [--sources FOLDER] [--gpt2 FOLDER] [--train BYTES] [--vocab-size N]

Writes FOLDER/corpus.bin (documents as bytes, each with its length as u32 before it) and for each kind of tokenizer a folder with
its files and expected.json: the ids of each document and the text decoded from them; of SentencePiece also how many ids the
documents have as one, repeated to half a megabyte, and their digest: rounding decides in long texts what it does not in short
ones. Bytes that are not UTF-8 are replaced first.
--gpt2 is a folder with a vocab.json and merges.txt to use in place of trained ones, --sources has files to take text from.

The fixtures are of `tokenizer_parity.py fixtures/tokenizers 9000 --vocab-size 700`; the comparison of a release is
`tokenizer_parity.py /tmp/parity 10000000 --sources ~/.cargo/registry/src --train 1000000 --vocab-size 8000`, then
`BURN_MEGATRON_TOKENIZER_PARITY=/tmp/parity cargo test --release -p burn-megatron-data --test tokenizer_parity -- --ignored --nocapture`.
"""

import argparse
import hashlib
import io
import json
import pathlib
import random
import shutil
import time
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SCRIPTS = [
    (0x41, 0x7A), (0xC0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x5D0, 0x5EA), (0x600, 0x6FF),
    (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE5B), (0xF00, 0xFBC), (0x1000, 0x109F), (0x10A0, 0x10FF),
    (0x1200, 0x137F), (0x1780, 0x17F9), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F6FF),
    (0x1F900, 0x1F9FF), (0x1D400, 0x1D7FF), (0x10000, 0x100FF), (0x300, 0x36F), (0x2000, 0x206F), (0x3000, 0x303F),
    (0xFF00, 0xFFEF),
]
JOINED = [
    "👨‍👩‍👧‍👦", "🏳️‍🌈", "👩🏽‍🚀", "🇩🇪🇫🇷", "☝🏿", "e\u0301\u0323", "가\u11a8", "\ufb01", "İ", "ß", "ſ", "ǅ", "Ⅷ", "½", "²",
    "٣", "१२३", "一二三", "\u0345", "\ufffd", "\u2581", "\u2581a",
]
SPECIAL = [
    "<|endoftext|>", "<|begin_of_text|>", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "<unk>", "</s>", "<s>", "<pad>",
    "<extra_id_0>", "<|endoftext", "|>", "[cls]", "<0x41>", "<sep>", "<0xFF>",
]
SPACES = [
    " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\x0b", "\x0c",
    "\x85", "\ufeff", "\x1c", "\x00", "\x7f", "\u00ad", "\u180e",
]
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'ve", "'m", "'ll", "'d", "'LL", "’s", "''s", "'sx", "I'm", "don't", "'", "d'", "'ſ", "'Re"]
SENTENCES = [
    "The quick brown fox jumps over the lazy dog. ", "fn main() {\n    println!(\"{}\", 1 + 2);\n}\n", "它是一个测试。",
    "Это проверка слов и токенов. ", "def f(x):\n\treturn x ** 2  # square\n", "これはテストです。", "한국어 문장입니다. ",
    "هذا اختبار. ", "C'est l'été à Zürich, naïve façade! ", "let x: Vec<u8> = vec![0; 16];\n",
]


def word(draw, assigned):
    kind = draw.random()
    if kind < 0.30:
        return draw.choice(SENTENCES)
    if kind < 0.55:
        first, last = draw.choice(SCRIPTS)
        return "".join(chr(draw.randint(first, last)) for _ in range(draw.randint(1, 9)))
    if kind < 0.65:
        return "".join(draw.choice(assigned) for _ in range(draw.randint(1, 6)))
    if kind < 0.70:
        return draw.choice(JOINED)
    if kind < 0.73:
        return draw.choice(SPECIAL)
    if kind < 0.80:
        return draw.choice(CONTRACTIONS)
    if kind < 0.87:
        return str(draw.randint(0, 10 ** draw.randint(1, 20)))
    if kind < 0.93:
        return "".join(draw.choice("!?.,;:-_=+*/\\|<>()[]{}#@$%^&~`\"'") for _ in range(draw.randint(1, 12)))
    return bytes(draw.randrange(256) for _ in range(draw.randint(1, 12)))


def encoded(part):
    return part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")


def document(draw, assigned, words):
    parts = []
    for _ in range(draw.randint(0, words)):
        parts.append(word(draw, assigned))
        if draw.random() < 0.85:
            parts.append(draw.choice(SPACES))
        if draw.random() < 0.03:
            parts.append(draw.choice(SPACES) * draw.randint(1, 40))
    return b"".join(map(encoded, parts))


def make_corpus(size, sources):
    draw = random.Random(1234)
    assigned = [chr(c) for c in range(0x20, 0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    documents = []
    total = 0
    if sources:
        files = sorted(p for p in pathlib.Path(sources).expanduser().rglob("*") if p.suffix in (".rs", ".md", ".toml", ".c"))
        draw.shuffle(files)
        for file in files:
            if total > size * 7 // 10:
                break
            documents.append(file.read_bytes()[:200_000])
            total += len(documents[-1])
    while total < size:
        documents.append(document(draw, assigned, 400 if size > 1_000_000 else 60))
        total += len(documents[-1])
    long = 20_000 if size > 1_000_000 else 300
    documents += [b"", b" ", b"\n", b"a" * long, b"ab" * long, b" " * long, b"\n" * long, "漢".encode() * long, b"\xff" * 9]
    draw.shuffle(documents)
    return documents


def byte_level(vocabulary, merges):
    tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    return tokenizer


def gpt2(folder, texts, size, given):
    if given:
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(pathlib.Path(given) / name, folder / name)
    else:
        trained = Tokenizer(models.BPE())
        trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trained.train_from_iterator(texts, trainers.BpeTrainer(
            vocab_size=size, show_progress=False, special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        trained.model.save(str(folder))
    return byte_level(folder / "vocab.json", folder / "merges.txt")


def llama3(folder, texts, size):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    # All ways to make a token of two others, as converted vocabularies have them, and words that no merge makes.
    description = json.loads(tokenizer.to_str())
    vocabulary = description["model"]["vocab"]
    for text in ["Ġzebra", "Ġzebraic", "qqqq"]:
        vocabulary.setdefault(text, len(vocabulary))
    merges = []
    for text, _ in sorted(vocabulary.items(), key=lambda entry: entry[1]):
        splits = [[text[:i], text[i:]] for i in range(1, len(text))]
        merges += [split for split in splits if split[0] in vocabulary and split[1] in vocabulary and text != "qqqq"]
    description["model"]["merges"] = merges
    tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    return tokenizer


def word_piece(folder, texts, size, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, special_tokens=BERT_SPECIAL, limit_alphabet=size // 4))
    tokenizer.model.save(str(folder))
    tokenizer.model = models.WordPiece.from_file(str(folder / "vocab.txt"), unk_token="[UNK]")
    tokenizer.add_special_tokens(BERT_SPECIAL)
    tokenizer.decoder = decoders.WordPiece()
    ends = [("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))]
    tokenizer.post_processor = processors.BertProcessing(ends[1], ends[0])
    return tokenizer


def few_characters(texts):
    """Texts after which most characters are unknown."""
    return ["".join(c for c in text if ord(c) < 0x250 or 0x400 <= ord(c) < 0x460) for text in texts]


def unigram(folder, texts, size):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    texts = few_characters(texts)
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    return tokenizer


def sentence_piece(folder, texts, size, **settings):
    model = io.BytesIO()
    lines = (line for text in texts for line in text.replace("\0", "").split("\n") if 0 < len(line.encode()) < 4000)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, vocab_size=size, minloglevel=2, hard_vocab_limit=False, **settings)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def expect(folder, tokenizer, documents):
    texts = [document.decode("utf-8", "replace") for document in documents]
    start = time.perf_counter()
    if isinstance(tokenizer, Tokenizer):
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        seconds = time.perf_counter() - start
        decoded = [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in ids]
        prompt = tokenizer.encode("Once upon a time").ids
    else:
        ids = [tokenizer.encode(text) for text in texts]
        seconds = time.perf_counter() - start
        decoded = [tokenizer.decode(tokens) for tokens in ids]
        prompt = tokenizer.encode("Once upon a time")
    expected = {"ids": ids, "decoded": decoded, "prompt": prompt}
    if not isinstance(tokenizer, Tokenizer):
        text = "".join(texts)
        times = max(1, 500_000 // len(text.encode()))
        joined = tokenizer.encode(text * times)
        digest = hashlib.sha256(b"".join(token.to_bytes(4, "little") for token in joined))
        expected["joined"] = {"times": times, "tokens": len(joined), "sha256": digest.hexdigest()}
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")), "utf-8")
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{folder.name}: {len(ids)} documents, {sum(map(len, ids))} tokens, {megabytes / seconds:.2f} MB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("bytes", type=int)
    parser.add_argument("--sources")
    parser.add_argument("--gpt2")
    parser.add_argument("--train", type=int, default=200_000)
    parser.add_argument("--vocab-size", type=int, default=700)
    arguments = parser.parse_args()
    print("tokenizers", tokenizers.__version__, "sentencepiece", sentencepiece.__version__)
    documents = make_corpus(arguments.bytes, arguments.sources)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "corpus.bin").write_bytes(
        b"".join(len(document).to_bytes(4, "little") + document for document in documents))
    texts = [document.decode("utf-8", "replace") for document in make_corpus(arguments.train, arguments.sources)]
    size = arguments.vocab_size
    plain = few_characters(texts) + SENTENCES * 50
    # SentencePiece's own rules are 240 kB; those of the fixtures have all forms of them.
    rules = arguments.folder / "rules.tsv"
    rules.write_text("FB01\t66 69\nB2\t32\nA0\t20\n3000\t20\n9\t20\nA\t20\nFF21\t41\n65 301\tE9\n65 301 323\t1EB9 301\n7F\t\n")
    normalization = {"normalization_rule_name": "nmt_nfkc"} if size > 2000 else {"normalization_rule_tsv": str(rules)}
    kinds = {
        "gpt2": lambda folder: gpt2(folder, texts, size, arguments.gpt2),
        "llama3": lambda folder: llama3(folder, texts, size),
        "word_piece_lower_case": lambda folder: word_piece(folder, texts, size, True),
        "word_piece_case": lambda folder: word_piece(folder, texts, size, False),
        "unigram": lambda folder: unigram(folder, texts, size),
        "sentence_piece_unigram": lambda folder: sentence_piece(
            folder, plain, size, model_type="unigram", character_coverage=0.98, user_defined_symbols=["<sep>"],
            **normalization),
        "sentence_piece_bpe": lambda folder: sentence_piece(
            folder, plain, size, model_type="bpe", character_coverage=0.98, byte_fallback=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True),
    }
    for name, make in kinds.items():
        folder = arguments.folder / name
        folder.mkdir(exist_ok=True)
        expect(folder, make(folder), documents)
    rules.unlink()


main()
