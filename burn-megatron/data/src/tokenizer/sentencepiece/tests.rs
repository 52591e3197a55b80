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
