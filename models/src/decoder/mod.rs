//! Transformers of one stack of blocks: what GPT, Llama and their like share, and BERT, whose tokens see both
//! directions.
//!
//! A family is a table, [`DecoderFamily`]: what its blocks are made of, what its parameters are called here and in
//! Hugging Face's files, its well-known sizes. This is the one model of all of them, in training, scoring and
//! generation, and all that programs ask of a family.

mod config;
mod family;
mod files;
mod masked;
mod model;
mod programs;
mod rope;
mod settings;
mod sizes;
mod stage;
mod table;

pub use config::{DecoderConfig, DecoderNames, MaskedTokenConfig, MaskedTokenNames, Positions, weight_inits};
pub use family::DecoderFamily;
pub use masked::{MaskedTokenHead, PairHead};
pub use model::Decoder;
pub use rope::{ABOVE_1, FileRope, ROPE_KEYS, RopeKind, SHARE};
pub use settings::{CommonSettings, HasCommonSettings};
pub(crate) use settings::{copied, decoder_config, settings};
pub use table::{ConfigKeys, FamilyTable, FileTable, StoredLayers};
