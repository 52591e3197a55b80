//! `TokenRoles`: which tokens begin, separate, mask, pad and stand for what was left out.

use serde_json::Value;

use super::Token;

/// Tokens that have a role in samples, as far as a vocabulary has them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenRoles {
    /// Begins a sample of BERT: `[CLS]`.
    pub cls: Option<Token>,
    /// Ends each of its segments: `[SEP]`.
    pub sep: Option<Token>,
    /// Replaces what is to be predicted: `[MASK]`.
    pub mask: Option<Token>,
    /// Fills a sample up: `[PAD]`.
    pub pad: Option<Token>,
    /// Begins a sequence.
    pub bos: Option<Token>,
    /// Ends a sequence.
    pub eos: Option<Token>,
    /// Stand for the spans that T5 predicts, in their order: `<extra_id_0>`, `<extra_id_1>`, …
    pub sentinels: Vec<Token>,
}

/// The texts that tokens of a role have in BERT's, T5's, RoBERTa's and Megatron-LM's vocabularies.
const CLS: &[&str] = &["[CLS]", "<CLS>", "<cls>", "<s>"];
const SEP: &[&str] = &["[SEP]", "<SEP>", "<sep>", "</s>"];
const MASK: &[&str] = &["[MASK]", "<MASK>", "<mask>"];
const PAD: &[&str] = &["[PAD]", "<PAD>", "<pad>"];
const BOS: &[&str] = &["[BOS]", "<BOS>", "<bos>", "<s>", "<|begin_of_text|>"];
const EOS: &[&str] = &["[EOS]", "<EOS>", "<eos>", "</s>", "<|end_of_text|>", "<|endoftext|>"];

/// Returns the text of a role's token in a `tokenizer_config.json`: a text, or an added token with its content.
pub(crate) fn named_text<'a>(config: &'a Value, role: &str) -> Option<&'a str> {
    let token = &config[role];
    token.as_str().or(token["content"].as_str())
}

impl TokenRoles {
    /// Returns the roles of a vocabulary by the texts of its tokens. `token` finds the token of a text.
    pub(super) fn by_texts(token: impl Fn(&str) -> Option<Token>) -> Self {
        let first = |texts: &[&str]| texts.iter().find_map(|text| token(text));
        Self {
            cls: first(CLS),
            sep: first(SEP),
            mask: first(MASK),
            pad: first(PAD),
            bos: first(BOS),
            eos: first(EOS),
            sentinels: (0..)
                .map_while(|number| token(&format!("<extra_id_{number}>")))
                .collect(),
        }
    }

    /// Returns each role by the name that it has in a `tokenizer_config.json`.
    pub(super) fn named(&mut self) -> [(&'static str, &mut Option<Token>); 6] {
        [
            ("cls_token", &mut self.cls),
            ("sep_token", &mut self.sep),
            ("mask_token", &mut self.mask),
            ("pad_token", &mut self.pad),
            ("bos_token", &mut self.bos),
            ("eos_token", &mut self.eos),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{BertWordPieceTokenizer, HuggingFaceTokenizer, NullTokenizer, Tokenizer};

    #[test]
    fn word_pieces_have_berts_roles_and_continue_words() {
        let vocabulary = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\n<extra_id_0>\n<extra_id_1>\n<extra_id_3>\n";
        let tokenizer = BertWordPieceTokenizer::lower_case(vocabulary).unwrap();
        let roles = TokenRoles {
            cls: Some(2),
            sep: Some(3),
            mask: Some(4),
            pad: Some(0),
            bos: None,
            eos: None,
            sentinels: vec![7, 8],
        };
        assert_eq!(tokenizer.token_roles(), roles);
        let continues = (0..11).filter(|&token| tokenizer.continues_word(Some(5), token));
        assert_eq!(continues.collect::<Vec<_>>(), [6]);
        assert_eq!(NullTokenizer::new(9).unwrap().token_roles(), TokenRoles::default());
    }

    #[test]
    fn the_files_next_to_a_vocabulary_name_roles_before_the_texts_do() {
        let json = br#"{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "unk_token": "[UNK]",
            "vocab": {"[UNK]": 0, "a": 1, "<m>": 2, "</s>": 3, "<pad>": 4, "[MASK]": 5}}}"#;
        let configs: [(&str, &[u8]); 2] = [
            (
                "tokenizer_config.json",
                br#"{"mask_token": {"content": "<m>"}, "cls_token": null, "sep_token": "none"}"#,
            ),
            ("special_tokens_map.json", br#"{"mask_token": "a", "eos_token": "a"}"#),
        ];
        let tokenizer = HuggingFaceTokenizer::from_json(json, &configs).unwrap();
        let roles = tokenizer.token_roles();
        assert_eq!(
            (roles.mask, roles.eos, roles.pad, roles.cls),
            (Some(1), Some(1), Some(4), None)
        );
        assert_eq!((roles.sep, tokenizer.end_of_document()), (Some(3), Some(1)));
        // Where the config lists all added tokens, transformers does not read the map.
        let complete: &[u8] = br#"{"mask_token": {"content": "<m>"}, "added_tokens_decoder": {}}"#;
        let tokenizer = HuggingFaceTokenizer::from_json(json, &[(configs[0].0, complete), configs[1]]).unwrap();
        assert_eq!(
            (tokenizer.token_roles().mask, tokenizer.end_of_document()),
            (Some(2), Some(3))
        );
        assert!(!tokenizer.continues_word(None, 1));
    }
}
