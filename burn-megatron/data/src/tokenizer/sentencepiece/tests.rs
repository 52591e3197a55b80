//! Models that are made here.

use prost::Message;

use super::model::{ModelProto, ModelType, NormalizerSpec, Piece, PieceType, TrainerSpec};
use super::*;

fn model(kind: ModelType, pieces: &[(&str, f32, PieceType)]) -> ModelProto {
    ModelProto {
        pieces: pieces
            .iter()
            .map(|&(piece, score, r#type)| Piece {
                piece: Some(piece.to_owned()),
                score: Some(score),
                r#type: Some(r#type as i32),
            })
            .collect(),
        trainer_spec: Some(TrainerSpec {
            model_type: Some(kind as i32),
            ..Default::default()
        }),
        normalizer_spec: Some(NormalizerSpec::default()),
    }
}

const PIECES: [(&str, f32, PieceType); 8] = [
    ("<unk>", 0.0, PieceType::Unknown),
    ("<s>", 0.0, PieceType::Control),
    ("</s>", 0.0, PieceType::Control),
    ("<sep>", 0.0, PieceType::UserDefined),
    ("▁a", -1.0, PieceType::Normal),
    ("▁", -2.0, PieceType::Normal),
    ("a", -3.0, PieceType::Normal),
    ("b", -4.0, PieceType::Normal),
];

/// A vocabulary with all bytes, from number 8 on.
pub(in crate::tokenizer) fn with_bytes() -> SentencePieceTokenizer {
    let bytes: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut pieces = PIECES.to_vec();
    pieces.extend(bytes.iter().map(|byte| (byte.as_str(), 0.0, PieceType::Byte)));
    SentencePieceTokenizer::new(&model(ModelType::Bpe, &pieces).encode_to_vec()).unwrap()
}

fn tokens(model: &ModelProto, text: &str) -> Vec<Token> {
    let tokenizer = SentencePieceTokenizer::new(&model.encode_to_vec()).unwrap();
    let mut tokens = vec![];
    tokenizer.encode(text, &mut tokens);
    tokens
}

fn message(bytes: &[u8]) -> String {
    SentencePieceTokenizer::new(bytes).err().unwrap().to_string()
}

#[test]
fn both_kinds_cut_text() {
    for kind in [ModelType::Unigram, ModelType::Bpe] {
        let model = model(kind, &PIECES);
        assert_eq!(tokens(&model, "  ab  a "), [4, 7, 4]);
        // Neighbours without a piece are one unknown piece, and marks are no text.
        assert_eq!(tokens(&model, "漢字a"), [5, 0, 6]);
        assert_eq!(tokens(&model, "a<sep> a"), [4, 3, 4]);
        assert!(!tokens(&model, "</s>").contains(&2));
        assert_eq!(tokens(&model, "   "), [] as [Token; 0]);
        let tokenizer = SentencePieceTokenizer::new(&model.encode_to_vec()).unwrap();
        assert_eq!(tokenizer.decode(&[1, 4, 7, 4, 2, 99]), "ab a");
        assert_eq!(
            [1, 4, 7].map(|token| tokenizer.token_bytes(token)),
            ["<s>", " a", "b"].map(Vec::from)
        );
        assert_eq!(
            (tokenizer.end_of_document(), tokenizer.special_tokens()),
            (Some(2), &[1, 2][..])
        );
        let roles = tokenizer.token_roles();
        assert_eq!(
            (roles.bos, roles.eos, roles.sep, roles.mask),
            (Some(1), Some(2), Some(3), None)
        );
    }
}

#[test]
fn bytes_that_are_no_text_are_replaced_one_by_one() {
    let tokenizer = with_bytes();
    let byte = |byte: Token| 8 + byte;
    assert_eq!(tokenizer.decode(&[4, byte(0xE6), byte(0xBC), 4]), "a\u{FFFD}\u{FFFD} a");
    assert_eq!(tokenizer.decode(&[4, byte(0xE6), byte(0xBC), byte(0xA2)]), "a漢");
    assert_eq!(tokenizer.decode_with_special(&[1, 4, 4, 2]), "<s> a a</s>");
    assert_eq!(
        [4, 2, byte(0xE6)].map(|token| tokenizer.token_text(token)),
        [" a", "</s>", "\u{FFFD}"]
    );
}

#[test]
fn a_config_next_to_the_model_says_what_prompts_begin_and_end_with() {
    let prompt = |config: &str, text: &str| {
        let settings = TokenizerSettings::parse(&[("tokenizer_config.json", config.as_bytes())])?;
        let mut tokens = vec![];
        let tokenizer = with_bytes().with_settings(&settings, None)?;
        tokenizer.encode_prompt(text, &mut tokens);
        Ok::<_, TokenizerError>((tokens, tokenizer.end_of_document()))
    };
    for (config, text, expected) in [
        ("{}", "a", vec![4]),
        (r#"{"add_bos_token": true}"#, "a", vec![1, 4]),
        // As a chat template writes it.
        (r#"{"add_bos_token": true}"#, "<s>a", vec![1, 4]),
        (
            r#"{"add_bos_token": true, "legacy": false}"#,
            "<s>a</s>a",
            vec![1, 6, 2, 6],
        ),
        (
            r#"{"add_bos_token": true, "legacy": true}"#,
            "a</s><s>a",
            vec![1, 4, 2, 1, 4],
        ),
        (
            r#"{"add_bos_token": false, "tokenizer_class": "LlamaTokenizer"}"#,
            "a",
            vec![4],
        ),
        (r#"{"tokenizer_class": "LlamaTokenizer"}"#, "a", vec![1, 4]),
        (
            r#"{"tokenizer_class": "LlamaTokenizerFast", "add_eos_token": true}"#,
            "a",
            vec![1, 4, 2],
        ),
        (r#"{"add_bos_token": true, "bos_token": "<sep>"}"#, "a", vec![3, 4]),
        (
            r#"{"added_tokens_decoder": {"2": {"content": "</s>"}, "0": {"content": "<unk>"}}}"#,
            "a",
            vec![4],
        ),
    ] {
        assert_eq!(prompt(config, text).unwrap(), (expected, Some(2)), "{config}");
    }
    assert_eq!(prompt(r#"{"eos_token": "<s>"}"#, "").unwrap().1, Some(1));
    for (config, words) in [
        (
            r#"{"added_tokens_decoder": {"264": {"content": "<pad>"}}}"#,
            "\"<pad>\" with the number 264, which takes a",
        ),
        (r#"{"eos_token": "<none>"}"#, "its eos_token \"<none>\" is not a token"),
        (
            r#"{"add_bos_token": "no"}"#,
            "add_bos_token is \"no\": expected true or false",
        ),
    ] {
        let error = prompt(config, "").unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_is_not_supported_is_named() {
    assert!(message(b"\xff\xff").contains("not a SentencePiece model"));
    assert!(message(b"").contains("no piece is the unknown one"));
    assert!(message(&model(ModelType::Word, &PIECES).encode_to_vec()).contains("Word"));
    let mut damaged = model(ModelType::Unigram, &PIECES);
    for map in [vec![1], vec![255; 8], vec![6, 0, 0, 0, 1, 2, 3, 4, 5, 6]] {
        damaged.normalizer_spec = Some(NormalizerSpec {
            precompiled_charsmap: Some(map),
            ..Default::default()
        });
        assert!(message(&damaged.encode_to_vec()).contains("character map"));
    }
    // A trie that points outside of itself finds nothing.
    let map = [
        &8_u32.to_le_bytes()[..],
        &u32::MAX.to_le_bytes(),
        &u32::MAX.to_le_bytes(),
        b"x\0",
    ]
    .concat();
    damaged.normalizer_spec = Some(NormalizerSpec {
        precompiled_charsmap: Some(map),
        ..Default::default()
    });
    assert_eq!(tokens(&damaged, "a"), [4]);
    let mut few_bytes = PIECES.to_vec();
    few_bytes.push(("<0x00>", 0.0, PieceType::Byte));
    assert!(message(&model(ModelType::Bpe, &few_bytes).encode_to_vec()).contains("<0x01>"));
}
