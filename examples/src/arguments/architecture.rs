//! Flags that say what a model is made of.

use clap::Args;
use clap::builder::PossibleValuesParser;
use models::ModelSettings;
use models::architecture::Architecture;
use models::registry::{FAMILIES, Family};

/// What the model is made of, by Megatron-LM's flags. A family is one architecture: flags that say what it is are
/// taken, those that say another are refused; a few choose what it leaves open.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Architecture")]
pub struct ArchitectureArguments {
    /// Which norms: of --model-family llama RMSNorm, of others LayerNorm
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(["LayerNorm", "RMSNorm"]))]
    pub normalization: Option<String>,
    /// How the model knows where a token is: learned_absolute of --model-family gpt, rope of llama and neox,
    /// alibi of bloom
    #[arg(
        long, value_name = "NAME",
        value_parser = PossibleValuesParser::new(["learned_absolute", "rope", "alibi"])
    )]
    pub position_embedding_type: Option<String>,
    /// Share of a head that rotary positions turn [default: the preset's; 0.25 of --model-family neox, which has a
    /// choice]
    #[arg(long, value_name = "X")]
    pub rotary_percent: Option<f64>,
    /// Earlier tokens that a token attends to, in --model-family llama, which has a choice; Megatron-LM's form, with
    /// ",0" after the number, is taken too [default: the preset's, or all]
    #[arg(long, value_name = "N", value_parser = parse_window)]
    pub window_size: Option<usize>,
    /// An MLP that is gated by SiLU: --model-family llama
    #[arg(long)]
    pub swiglu: bool,
    /// Linear layers without biases: --model-family llama
    #[arg(long)]
    pub disable_bias_linear: bool,
    /// Norm each query head and each key head, in --model-family llama, which has a choice
    #[arg(long)]
    pub qk_layernorm: bool,
    /// Key heads that are shared: --model-family llama with fewer --num-query-groups than heads
    #[arg(long)]
    pub group_query_attention: bool,
}

/// The earlier tokens of a window that has no later ones.
fn parse_window(text: &str) -> Result<usize, String> {
    let earlier = text.strip_suffix(",0").unwrap_or(text);
    let window = earlier.parse::<usize>();
    window.map_err(|_| format!("expected a number of earlier tokens, as 4095 or 4095,0; got {text:?}"))
}

impl ArchitectureArguments {
    /// The flags that are given, and their values.
    fn given(&self) -> Vec<(&'static str, String)> {
        let with_value = [
            ("--normalization", self.normalization.clone()),
            ("--position-embedding-type", self.position_embedding_type.clone()),
            (
                "--rotary-percent",
                self.rotary_percent.map(|percent| percent.to_string()),
            ),
            ("--window-size", self.window_size.map(|window| window.to_string())),
        ];
        let alone = [
            ("--swiglu", self.swiglu),
            ("--disable-bias-linear", self.disable_bias_linear),
            ("--qk-layernorm", self.qk_layernorm),
            ("--group-query-attention", self.group_query_attention),
        ];
        let alone = alone.map(|(flag, is_given)| (flag, is_given.then(|| true.to_string())));
        let all = with_value.into_iter().chain(alone);
        all.filter_map(|(flag, value)| Some((flag, value?))).collect()
    }

    /// Returns the first flag that a checkpoint's model is not what it says, and both values.
    pub(super) fn difference(&self, stored: &Architecture) -> Option<String> {
        let mut given = self.given().into_iter();
        given.find_map(|(flag, value)| {
            let there = stored.value_of(flag);
            let is_same = there.as_ref() == Some(&value);
            (!is_same).then(|| {
                format!(
                    "{flag} is {} there and {value} here",
                    there.as_deref().unwrap_or("nothing")
                )
            })
        })
    }

    /// Checks that a new model of this family, of these settings, is what the flags say.
    ///
    /// # Errors
    /// One says another thing: names the flag, the family, and which families would be that.
    pub(super) fn check(&self, family: &Family, settings: &ModelSettings) -> anyhow::Result<()> {
        let architecture = (family.config)(settings).architecture();
        for (flag, value) in self.given() {
            let found = architecture.value_of(flag);
            if found.as_ref() == Some(&value) {
                continue;
            }
            // Another family does not have this one's sizes.
            let others = ModelSettings {
                preset: None,
                ..settings.clone()
            };
            let has_it =
                |other: &&Family| (other.config)(&others).architecture().value_of(flag).as_ref() == Some(&value);
            let names: Vec<&str> = FAMILIES.iter().filter(has_it).map(|other| other.name).collect();
            let elsewhere = match names.as_slice() {
                [] => "no family has".to_owned(),
                names => format!("--model-family {} has", names.join(" or ")),
            };
            let name = family.name;
            match found.filter(|_| value != "true") {
                Some(own) => anyhow::bail!("--model-family {name} has {flag} {own}, got {value}, which {elsewhere}"),
                None => anyhow::bail!("--model-family {name} of these sizes has no {flag}, which {elsewhere}"),
            }
        }
        Ok(())
    }
}
