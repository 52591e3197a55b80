//! `TokenRoles`: which tokens begin, separate, mask, pad and stand for what was left out.

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
