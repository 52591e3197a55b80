//! Flags of the model's sizes.

use anyhow::Context as _;
use burn_megatron::checkpoint::Checkpoint;
use clap::Args;
use clap::builder::PossibleValuesParser;
use models::registry::{self, AnyModel, FAMILIES, Family, FamilyProgram, run_with_family};
use models::{ModelFamily, ModelSettings, Objective};

use super::{ArchitectureArguments, RecomputeArguments};
use crate::saved_state::{FamilyState, ModelState, other_model};

/// The model. The defaults are those of a small new model that two cores train in minutes; with a checkpoint in --load
/// the model is the checkpoint's, and flags confirm what it is, or change what a run may change.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct ModelArguments {
    /// A well-known size; the flags below override parts of it
    #[arg(
        long, value_name = "NAME",
        value_parser = PossibleValuesParser::new(registry::presets())
    )]
    pub model_size: Option<String>,
    /// The kind of model [default: that of the checkpoint in --load, or of --model-size, or gpt]
    #[arg(
        long, value_name = "NAME",
        value_parser = PossibleValuesParser::new(FAMILIES.iter().map(|family| family.name))
    )]
    pub model_family: Option<String>,
    /// Transformer layers [default: 4]
    #[arg(long, value_name = "N", visible_alias = "encoder-num-layers")]
    pub num_layers: Option<usize>,
    /// Size of each token [default: 256]
    #[arg(long, value_name = "N")]
    pub hidden_size: Option<usize>,
    /// Attention heads [default: 4]
    #[arg(long, value_name = "N")]
    pub num_attention_heads: Option<usize>,
    /// Key heads, and value heads, which attention heads share [default: the preset's, or half of
    /// --num-attention-heads]
    #[arg(long, value_name = "N")]
    pub num_query_groups: Option<usize>,
    /// Size of a head [default: --hidden-size / --num-attention-heads]
    #[arg(long, value_name = "N")]
    pub kv_channels: Option<usize>,
    /// Size of the MLP's hidden layer [default: the preset's; 4 * --hidden-size, or 8/3 of it where the MLP is gated]
    #[arg(long, value_name = "N")]
    pub ffn_hidden_size: Option<usize>,
    /// What the wavelengths of rotary positions are powers of [default: the preset's, or 10000]
    #[arg(long, value_name = "X")]
    pub rotary_base: Option<f64>,
    /// Give queries, keys and values a bias, in a family that has none by itself
    #[arg(long)]
    pub add_qkv_bias: bool,
    /// What norms add to the variance [default: the preset's, or 1e-5]
    #[arg(long, value_name = "X")]
    pub norm_epsilon: Option<f64>,
    /// Tokens per sample [default: 128, or the preset's, or what the model of --load takes, at most 4096]
    #[arg(long, value_name = "N", visible_alias = "encoder-seq-length")]
    pub seq_length: Option<usize>,
    /// Positions that the model has, at least --seq-length [default: --seq-length, or those of the model of --load]
    #[arg(long, value_name = "N")]
    pub max_position_embeddings: Option<usize>,
    /// Rows of the embedding with padding [default: the next multiple of 128 * tensor size]; changes no result
    #[arg(long, value_name = "N")]
    pub padded_vocab_size: Option<usize>,
    /// The most tokens whose logits are in one buffer [default: those of 1 GiB]; the loss is the same
    /// except for rounding
    #[arg(long, value_name = "N")]
    pub logit_chunk_tokens: Option<usize>,
    /// Standard deviation of the weights at the start [default: 0.02]
    #[arg(long, value_name = "X")]
    pub init_method_std: Option<f64>,
    /// Give the output head weights of its own
    #[arg(long)]
    pub untie_embeddings_and_output_weights: bool,
    /// Transformer layers of a T5's decoder [default: --num-layers, which are the encoder's]
    #[arg(long, value_name = "N")]
    pub decoder_num_layers: Option<usize>,
    /// Tokens per sample of a T5's decoder [default: 128; --seq-length are the encoder's]
    #[arg(long, value_name = "N")]
    pub decoder_seq_length: Option<usize>,
    /// Let a BERT learn masked tokens only, not whether one sentence follows another
    #[arg(long)]
    pub bert_no_binary_head: bool,
    /// Probability with which an element of a hidden state falls [default: 0, or that of the model of --load]
    #[arg(long, value_name = "P")]
    pub hidden_dropout: Option<f64>,
    /// Probability with which an attention weight falls [default: 0, or that of the model of --load]
    #[arg(long, value_name = "P")]
    pub attention_dropout: Option<f64>,
    /// Give the same bits for the same inputs: on CUDA, attention in 16 bits adds up the gradients of its queries in an
    /// order that differs from run to run unless asked not to, which is slower
    #[arg(long)]
    pub deterministic_mode: bool,
    #[command(flatten)]
    pub architecture: ArchitectureArguments,
    #[command(flatten)]
    pub recompute: RecomputeArguments,
}

impl ModelArguments {
    /// Sets the family of a program that trains no other.
    ///
    /// # Errors
    /// When the flags name another.
    pub fn set_family(&mut self, family: &str) -> anyhow::Result<()> {
        let given = self.model_family.get_or_insert_with(|| family.to_owned());
        anyhow::ensure!(
            given == family,
            "this program trains --model-family {family}, got {given}: leave it out, or use pretrain_gpt"
        );
        Ok(())
    }

    /// The family of the checkpoint, or the one that the flags name, or that of `--model-size`.
    ///
    /// # Errors
    /// When the flags name another family than the checkpoint's, `--model-size` is another family's, or the flags name
    /// what the family does not have.
    pub fn family(&self, checkpoint: Option<&Checkpoint>) -> anyhow::Result<&'static Family> {
        let of_size = self.model_size.as_deref().and_then(Family::with_preset);
        let given = self.model_family.as_deref().map(Family::named).transpose()?;
        let family = match checkpoint {
            Some(checkpoint) => {
                let (path, FamilyState { family }) = (checkpoint.path(), FamilyState::of(checkpoint)?);
                if let Some(given) = given.or(of_size).filter(|given| given.name != family) {
                    let difference = format!("--model-family is {family} there and {} here", given.name);
                    return Err(other_model(path, &difference));
                }
                Family::named(&family).with_context(|| path.display().to_string())?
            }
            None => given.or(of_size).unwrap_or(&FAMILIES[0]),
        };
        let (name, sizes) = (family.name, (family.presets)());
        anyhow::ensure!(
            self.model_size.as_deref().is_none_or(|size| sizes.contains(&size)),
            "--model-size must be one of --model-family {name}: {}; got {}",
            sizes.join(", "),
            self.model_size.as_deref().unwrap_or_default()
        );
        self.check_choices(family)?;
        if checkpoint.is_none() {
            // What is compared does not depend on the vocabulary.
            self.architecture.check(family, &self.settings(1))?;
        }
        Ok(family)
    }

    /// Checks that the family has all the settings that the flags name.
    fn check_choices(&self, family: &Family) -> anyhow::Result<()> {
        let given = [
            ("--num-query-groups", self.num_query_groups.is_some()),
            ("--kv-channels", self.kv_channels.is_some()),
            ("--ffn-hidden-size", self.ffn_hidden_size.is_some()),
            ("--rotary-base", self.rotary_base.is_some()),
            ("--add-qkv-bias", self.add_qkv_bias),
            ("--bert-no-binary-head", self.bert_no_binary_head),
            ("--decoder-num-layers", self.decoder_num_layers.is_some()),
            ("--decoder-seq-length", self.decoder_seq_length.is_some()),
        ];
        let choices = family.choices;
        for (flag, _) in given.iter().filter(|(_, is_given)| *is_given) {
            let name = family.name;
            anyhow::ensure!(
                choices.contains(flag),
                "--model-family {name} has no {flag}: leave it out"
            );
        }
        Ok(())
    }

    /// Returns what is asked of a new model, with a tokenizer's vocabulary.
    pub fn settings(&self, vocab_size: usize) -> ModelSettings {
        ModelSettings {
            preset: self.model_size.clone(),
            vocab_size,
            n_layers: self.num_layers,
            d_model: self.hidden_size,
            n_heads: self.num_attention_heads,
            max_seq_length: self.max_position_embeddings.or(self.seq_length),
            padded_vocab_size: self.padded_vocab_size,
            n_kv_heads: self.num_query_groups,
            d_head: self.kv_channels,
            d_hidden: self.ffn_hidden_size,
            rotary_base: self.rotary_base,
            qkv_bias: self.add_qkv_bias,
            qk_norm: self.architecture.qk_layernorm,
            rotary_percent: self.architecture.rotary_percent,
            window: self.architecture.window_size.map(|earlier| earlier.saturating_add(1)),
            norm_epsilon: self.norm_epsilon,
            n_decoder_layers: self.decoder_num_layers,
            decoder_seq_length: self.decoder_seq_length,
            tells_pairs: self.bert_no_binary_head.then_some(false),
            tied_embeddings: self.untie_embeddings_and_output_weights.then_some(false),
            init_deviation: self.init_method_std,
            hidden_dropout: self.hidden_dropout,
            attention_dropout: self.attention_dropout,
            layer_recompute: self.recompute.layers(),
            logit_chunk_tokens: self.logit_chunk_tokens,
        }
    }

    /// The model for a tokenizer of this many tokens: that of the checkpoint, with what the flags may change of it, or
    /// a new one.
    ///
    /// # Errors
    /// When the flags say another model than the checkpoint's, or the tokenizer has more tokens.
    pub fn model<C: ModelFamily>(&self, checkpoint: Option<&Checkpoint>, num_tokens: usize) -> anyhow::Result<C> {
        let settings = self.settings(num_tokens);
        let Some(checkpoint) = checkpoint else {
            return Ok(C::from_settings(&settings));
        };
        let (path, stored) = (checkpoint.path(), ModelState::<C>::of(checkpoint)?);
        if let Some(difference) = self.architecture.difference(&stored.model.architecture()) {
            return Err(other_model(path, &difference));
        }
        // Samples may be shorter than the model's; longer ones change it, where it has no limit.
        let is_longer = |length: &usize| !stored.model.limits_length() && *length > stored.model.max_seq_length();
        let max_seq_length = self.max_position_embeddings.or(self.seq_length.filter(is_longer));
        stored.with_settings(
            path,
            &ModelSettings {
                max_seq_length,
                ..settings
            },
        )
    }

    /// The model as [`model`](Self::model) returns it, whatever its family.
    ///
    /// # Errors
    /// As [`family`](Self::family) and [`model`](Self::model).
    pub fn config(&self, checkpoint: Option<&Checkpoint>, num_tokens: usize) -> anyhow::Result<Box<dyn AnyModel>> {
        let program = Config {
            arguments: self,
            checkpoint,
            num_tokens,
        };
        run_with_family(self.family(checkpoint)?.name, program)?
    }

    /// Returns what the model learns.
    pub fn objective(&self, checkpoint: Option<&Checkpoint>) -> anyhow::Result<Objective> {
        // It does not depend on the vocabulary.
        Ok(self.config(checkpoint, 1)?.objective())
    }

    /// Checks what the model's own validation does not.
    ///
    /// # Errors
    /// When a probability is outside `[0, 1)`, there are fewer positions than tokens in a sample, a deviation is
    /// negative or not a number, or flags contradict each other.
    pub fn validate(&self) -> anyhow::Result<()> {
        for (flag, value) in [
            ("--hidden-dropout", self.hidden_dropout),
            ("--attention-dropout", self.attention_dropout),
        ] {
            let value = value.unwrap_or_default();
            anyhow::ensure!((0.0..1.0).contains(&value), "{flag} must be in [0, 1), got {value}");
        }
        if let (Some(positions), Some(length)) = (self.max_position_embeddings, self.seq_length) {
            anyhow::ensure!(
                positions >= length,
                "--max-position-embeddings must be at least --seq-length {length}, got {positions}"
            );
        }
        for (flag, value) in [
            ("--rotary-base", self.rotary_base),
            ("--norm-epsilon", self.norm_epsilon),
        ] {
            let is_valid = value.is_none_or(|value| value.is_finite() && value > 0.0);
            anyhow::ensure!(
                is_valid,
                "{flag} must be finite and above 0, got {}",
                value.unwrap_or_default()
            );
        }
        let deviation = self.init_method_std.unwrap_or_default();
        anyhow::ensure!(
            deviation.is_finite() && deviation >= 0.0,
            "--init-method-std must be finite and not negative, got {deviation}"
        );
        self.recompute.validate()
    }
}

/// Makes a model whose family is not known yet.
struct Config<'a> {
    arguments: &'a ModelArguments,
    checkpoint: Option<&'a Checkpoint>,
    num_tokens: usize,
}

impl FamilyProgram for Config<'_> {
    type Output = anyhow::Result<Box<dyn AnyModel>>;

    fn run<C: ModelFamily>(self) -> Self::Output {
        let model = self.arguments.model::<C>(self.checkpoint, self.num_tokens)?;
        Ok(Box::new(model))
    }
}

#[cfg(test)]
mod tests;
