//! SentencePiece's `tokenizer.model`.
//!
//! No kept crate reads one without a C++ build, so the file is read here: the normalization is SentencePiece's own,
//! pairs are merged as in the byte-level encoder, and the most probable pieces are found with sums in f32, which decide
//! between equal ones: those of the `tokenizers` crate have f64.

mod model;
mod normalize;
mod unigram;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::with_bytes;

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};
use parking_lot::Mutex;

use self::model::{ModelProto, ModelType, NormalizerSpec, PieceType, TrainerSpec};
use self::normalize::{Normalizer, Part};
use self::unigram::Unigram;
use super::byte_level::merge::{Links, Merges};
use super::settings::TokenizerSettings;
use super::{Token, TokenRoles, Tokenizer, TokenizerError};

/// How a vocabulary writes a space.
const SPACE: char = '\u{2581}';

/// A `tokenizer.model` of SentencePiece: unigram or byte pair encoding.
///
/// Documents end with `<EOD>` if there is such a piece, else with the model's end of a sentence. A prompt gets no piece
/// before it, unless a `tokenizer_config.json` says so.
pub struct SentencePieceTokenizer {
    normalizer: Normalizer,
    /// That of a text after a mark, where no space is put before it.
    after_mark: Option<Normalizer>,
    /// Finds the marks that a text spells out, where they become their tokens.
    marks: Option<(AhoCorasick, Vec<Token>)>,
    /// Pieces that are taken wherever a text has them, and their texts.
    fixed: Vec<(Token, String)>,
    cutter: Cutter,
    unknown: Token,
    bytes: Option<[Token; 256]>,
    surfaces: Vec<Surface>,
    special: Vec<Token>,
    roles: TokenRoles,
    end_of_document: Option<Token>,
    ends_of_text: Option<Vec<Token>>,
    /// The tokens of a prompt before and after its text.
    around: [Option<Token>; 2],
    strips_first_space: bool,
}

/// What a piece is in a decoded text.
#[derive(Debug, Clone)]
enum Surface {
    Text(String),
    Byte(u8),
    /// No text; its name.
    Mark(String),
}

/// Cuts normalized text into pieces.
enum Cutter {
    Unigram(Unigram),
    Pairs {
        characters: HashMap<char, Token>,
        merges: Merges,
        links: Mutex<Links>,
    },
}

fn invalid(reason: impl std::fmt::Display) -> TokenizerError {
    TokenizerError::invalid("tokenizer.model", reason)
}

impl SentencePieceTokenizer {
    /// Returns the tokenizer of a `tokenizer.model`.
    ///
    /// # Errors
    /// If the bytes are no SentencePiece model, if it is one of words or characters, or if it lacks the unknown piece
    /// or a byte.
    pub fn new(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let ModelProto {
            pieces,
            trainer_spec,
            normalizer_spec,
        } = model::parse(bytes)?;
        let trainer = trainer_spec.unwrap_or_else(TrainerSpec::default);
        let spec = normalizer_spec.unwrap_or_else(NormalizerSpec::default);
        let pieces: Vec<(&str, f32, PieceType)> = pieces
            .iter()
            .map(|piece| (piece.piece(), piece.score(), piece.r#type()))
            .collect();
        if pieces.len() > 1 << 31 {
            return Err(invalid(format!("{} pieces", pieces.len())));
        }
        let unknown = pieces.iter().position(|piece| piece.2 == PieceType::Unknown);
        let unknown = unknown.ok_or_else(|| invalid("no piece is the unknown one"))?;
        let of_type = |wanted| (0..).zip(&pieces).filter(move |(_, piece)| piece.2 == wanted);
        let (fixed, texts): (Vec<(Token, String)>, Vec<&str>) = of_type(PieceType::UserDefined)
            .filter(|(_, piece)| !piece.0.is_empty())
            .map(|(token, piece)| ((token, piece.0.to_owned()), piece.0))
            .unzip();
        let eos = Token::try_from(trainer.eos_id()).ok();
        let eos = eos.filter(|&eos| {
            pieces
                .get(eos as usize)
                .is_some_and(|piece| piece.2 == PieceType::Control)
        });
        let end = (0..)
            .zip(&pieces)
            .find(|(_, piece)| piece.0 == "<EOD>")
            .map(|(token, _)| token);
        let cutter = match trainer.model_type() {
            ModelType::Unigram => Cutter::Unigram(Unigram::new(&pieces)),
            ModelType::Bpe => Cutter::pairs(&pieces),
            kind @ (ModelType::Word | ModelType::Char) => {
                return Err(invalid(format!("a model of kind {kind:?}; valid are Unigram and Bpe")));
            }
        };
        let normalizer = |spec: &_| Normalizer::new(spec, trainer.treat_whitespace_as_suffix(), &texts);
        Ok(Self {
            normalizer: normalizer(&spec)?,
            after_mark: Some(normalizer(&NormalizerSpec {
                add_dummy_prefix: Some(false),
                ..spec.clone()
            })?),
            fixed,
            cutter,
            unknown: unknown as Token,
            bytes: byte_tokens(&pieces)?,
            surfaces: pieces
                .iter()
                .map(|piece| surface(piece, trainer.unk_surface()))
                .collect(),
            roles: roles(&pieces),
            special: of_type(PieceType::Control).map(|(token, _)| token).collect(),
            end_of_document: end.or(eos),
            ends_of_text: None,
            around: [None; 2],
            marks: None,
            strips_first_space: spec.add_dummy_prefix() || spec.remove_extra_whitespaces(),
        })
    }

    /// Returns the tokenizer as a folder describes it: its roles, what prompts begin and end with. Marks in a text
    /// become their tokens then, as in transformers.
    ///
    /// # Errors
    /// If tokens are added to the model, which takes a `tokenizer.json`, or one that is named is none.
    pub(super) fn with_settings(
        mut self,
        settings: &TokenizerSettings,
        ends_of_text: Option<Vec<Token>>,
    ) -> Result<Self, TokenizerError> {
        let names = self
            .surfaces
            .iter()
            .zip(0..)
            .filter_map(|(surface, token)| match surface {
                Surface::Text(text) | Surface::Mark(text) => Some((text.as_str(), token)),
                Surface::Byte(_) => None,
            });
        let mut names: HashMap<&str, Token> = names.collect();
        // Its text is what is written for it.
        names.insert("<unk>", self.unknown);
        let number_of = |text: &str| names.get(text).copied();
        if let Some((number, text)) = settings.added_beyond(number_of) {
            return Err(invalid(format!(
                "the files next to it add the token {text:?} with the number {number}, which takes a tokenizer.json: \
                 AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers writes one"
            )));
        }
        settings.set_roles(&mut self.roles, number_of)?;
        if settings.role("eos_token").is_some() {
            self.end_of_document = self.roles.eos;
        }
        let named = |role: Option<Token>| {
            role.ok_or_else(|| invalid("add_bos_token or add_eos_token is true, and no piece is it"))
        };
        self.around[0] = match settings.add_bos {
            Some(true) => Some(named(self.roles.bos)?),
            Some(false) => None,
            None => self.roles.bos.filter(|_| settings.begins_with_bos()),
        };
        if settings.add_eos == Some(true) {
            self.around[1] = Some(named(self.roles.eos)?);
        }
        if settings.is_of_transformers() {
            let (texts, tokens): (Vec<&str>, Vec<Token>) = self
                .special
                .iter()
                .filter_map(|&token| match &self.surfaces[token as usize] {
                    Surface::Mark(name) if !name.is_empty() => Some((name.as_str(), token)),
                    _ => None,
                })
                .unzip();
            let finder = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(texts);
            self.marks = Some((finder.map_err(invalid)?, tokens));
        }
        if settings.is_legacy()? {
            self.after_mark = None;
        }
        self.ends_of_text = ends_of_text;
        Ok(self)
    }

    fn surfaces(&self, tokens: &[Token]) -> impl Iterator<Item = &Surface> {
        tokens.iter().filter_map(|&token| self.surfaces.get(token as usize))
    }

    /// Returns the text of pieces, of which special ones are their names.
    fn join<'a>(&self, surfaces: impl Iterator<Item = &'a Surface>) -> String {
        let (mut bytes, mut first) = (vec![], true);
        for surface in surfaces {
            match surface {
                Surface::Mark(name) => bytes.extend_from_slice(name.as_bytes()),
                Surface::Byte(byte) => bytes.push(*byte),
                Surface::Text(text) if first && self.strips_first_space => {
                    bytes.extend_from_slice(text.strip_prefix(' ').unwrap_or(text).as_bytes());
                }
                Surface::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            }
            first = false;
        }
        // Each byte that is no text by itself, as in SentencePiece.
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|_| '\u{FFFD}'));
        }
        text
    }

    /// Appends a part that has no piece: its bytes, or the unknown piece, once for neighbours.
    fn push_unknown(&self, text: &str, first: bool, tokens: &mut Vec<Token>) {
        match &self.bytes {
            Some(bytes) => tokens.extend(text.bytes().map(|byte| bytes[usize::from(byte)])),
            None if !first && tokens.last() == Some(&self.unknown) => {}
            None => tokens.push(self.unknown),
        }
    }

    /// Appends the tokens of a text without marks.
    fn encode_text(&self, text: &str, is_after_mark: bool, tokens: &mut Vec<Token>) {
        let start = tokens.len();
        let normalizer = self
            .after_mark
            .as_ref()
            .filter(|_| is_after_mark)
            .unwrap_or(&self.normalizer);
        let parts = normalizer.normalize(text);
        if let Cutter::Unigram(_) = &self.cutter {
            // As a whole, for sums do not begin again after a fixed piece.
            let whole: String = (parts.iter())
                .map(|part| match part {
                    Part::Fixed(place) => &self.fixed[*place].1,
                    Part::Text(text) => text,
                })
                .map(String::as_str)
                .collect();
            return self.cut(&whole, start, tokens);
        }
        for part in parts {
            match part {
                Part::Fixed(place) => tokens.push(self.fixed[place].0),
                Part::Text(text) => self.cut(&text, start, tokens),
            }
        }
    }

    fn cut(&self, text: &str, start: usize, tokens: &mut Vec<Token>) {
        match &self.cutter {
            Cutter::Unigram(unigram) => unigram.cut(text, |part| match part {
                Ok(token) => tokens.push(token),
                Err(character) => self.push_unknown(character, tokens.len() == start, tokens),
            }),
            Cutter::Pairs {
                characters,
                merges,
                links,
            } => {
                // A character without a piece is a number after all pieces, which has no merge.
                let none = |character| self.surfaces.len() as u32 + u32::from(character);
                let mut word: Vec<Token> = text
                    .chars()
                    .map(|character| characters.get(&character).copied().unwrap_or_else(|| none(character)))
                    .collect();
                let taken = std::mem::take(&mut *links.lock());
                let mut own = taken;
                merges.apply(&mut word, &mut own);
                *links.lock() = own;
                for token in word {
                    match token.checked_sub(self.surfaces.len() as u32).and_then(char::from_u32) {
                        Some(character) => {
                            self.push_unknown(character.encode_utf8(&mut [0; 4]), tokens.len() == start, tokens);
                        }
                        None => tokens.push(token),
                    }
                }
            }
        }
    }
}

impl Cutter {
    fn pairs(pieces: &[(&str, f32, PieceType)]) -> Self {
        let usable = |piece: &&(&str, f32, PieceType)| matches!(piece.2, PieceType::Normal | PieceType::UserDefined);
        let numbers: HashMap<&str, Token> = pieces
            .iter()
            .zip(0..)
            .filter(|(piece, _)| usable(piece))
            .map(|(piece, token)| (piece.0, token))
            .collect();
        let mut order: Vec<usize> = (0..pieces.len()).filter(|&index| usable(&&pieces[index])).collect();
        order.sort_by(|&left, &right| pieces[right].1.total_cmp(&pieces[left].1).then(left.cmp(&right)));
        let mut merges = vec![];
        let mut rank = 0;
        for (place, &index) in order.iter().enumerate() {
            let (text, score, _) = pieces[index];
            // Pieces of the same score are merged from left to right.
            if place > 0 && pieces[order[place - 1]].1 != score {
                rank += 1;
            }
            for (split, _) in text.char_indices().skip(1) {
                if let (Some(&left), Some(&right)) = (numbers.get(&text[..split]), numbers.get(&text[split..])) {
                    merges.push((rank, left, right, index as Token));
                }
            }
        }
        let characters = numbers.iter().filter_map(|(text, &token)| {
            let mut characters = text.chars();
            Some((characters.next().filter(|_| characters.next().is_none())?, token))
        });
        Self::Pairs {
            characters: characters.collect(),
            merges: Merges::with_ranks(merges),
            links: Mutex::default(),
        }
    }
}

/// Returns the pieces of all bytes, or `None` if the vocabulary has no bytes.
fn byte_tokens(pieces: &[(&str, f32, PieceType)]) -> Result<Option<[Token; 256]>, TokenizerError> {
    let bytes: HashMap<u8, Token> = pieces
        .iter()
        .zip(0..)
        .filter_map(|(piece, token)| Some((byte_of(piece)?, token)))
        .collect();
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut tokens = [0; 256];
    for (byte, token) in (0..=u8::MAX).zip(&mut tokens) {
        *token = *bytes
            .get(&byte)
            .ok_or_else(|| invalid(format!("bytes are pieces, but <0x{byte:02X}> is not")))?;
    }
    Ok(Some(tokens))
}

/// Returns the roles of the control pieces and of those that the model's author defined.
fn roles(pieces: &[(&str, f32, PieceType)]) -> TokenRoles {
    let is_special = |kind| matches!(kind, PieceType::Control | PieceType::UserDefined);
    let special: HashMap<&str, Token> = (pieces.iter().zip(0..))
        .filter(|(piece, _)| is_special(piece.2))
        .map(|(piece, token)| (piece.0, token))
        .collect();
    TokenRoles::by_texts(|text| special.get(text).copied())
}

fn byte_of(piece: &(&str, f32, PieceType)) -> Option<u8> {
    let digits = piece.0.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16)
        .ok()
        .filter(|_| piece.2 == PieceType::Byte)
}

fn surface(piece: &(&str, f32, PieceType), unknown: &str) -> Surface {
    match (piece.2, byte_of(piece)) {
        (PieceType::Control, _) => Surface::Mark(piece.0.to_owned()),
        (PieceType::Unknown, _) => Surface::Text(unknown.to_owned()),
        (_, Some(byte)) => Surface::Byte(byte),
        (_, None) => Surface::Text(piece.0.replace(SPACE, " ")),
    }
}

impl Tokenizer for SentencePieceTokenizer {
    fn vocabulary_size(&self) -> usize {
        self.surfaces.len()
    }

    fn end_of_document(&self) -> Option<Token> {
        self.end_of_document
    }

    fn ends_of_text(&self) -> Vec<Token> {
        let ends = self.ends_of_text.clone();
        ends.unwrap_or_else(|| self.end_of_document.into_iter().collect())
    }

    fn special_tokens(&self) -> &[Token] {
        &self.special
    }

    fn token_roles(&self) -> TokenRoles {
        self.roles.clone()
    }

    fn encode(&self, text: &str, tokens: &mut Vec<Token>) {
        let mut start = 0;
        if let Some((finder, marks)) = &self.marks {
            for found in finder.find_iter(text) {
                self.encode_text(&text[start..found.start()], start > 0, tokens);
                tokens.push(marks[found.pattern().as_usize()]);
                start = found.end();
            }
        }
        self.encode_text(&text[start..], start > 0, tokens);
    }

    fn encode_prompt(&self, text: &str, tokens: &mut Vec<Token>) {
        let [before, after] = self.around;
        let mut of_text = vec![];
        self.encode(text, &mut of_text);
        tokens.extend(before.filter(|bos| of_text.first() != Some(bos)));
        tokens.append(&mut of_text);
        tokens.extend(after);
    }

    fn decode(&self, tokens: &[Token]) -> String {
        self.join((self.surfaces(tokens)).filter(|surface| !matches!(surface, Surface::Mark(_))))
    }

    fn decode_with_special(&self, tokens: &[Token]) -> String {
        self.join(self.surfaces(tokens))
    }

    fn token_bytes(&self, token: Token) -> Vec<u8> {
        match self.surfaces.get(token as usize) {
            Some(Surface::Byte(byte)) => vec![*byte],
            Some(Surface::Text(text) | Surface::Mark(text)) => text.clone().into(),
            None => vec![],
        }
    }
}
