//! [`FileRope`]: what a `config.json` says of rotary positions, in the forms of transformers 4 and 5.

use cubecl_kernels::rotary::tables::RotaryScaling;
use serde_json::json;

use crate::huggingface::{Fields, HuggingFaceError, Key};

/// Numbers of rotary positions; `None` where the object does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct FileRope {
    /// The base of the powers that wavelengths are.
    pub base: Option<f64>,
    /// The share of each head that is turned.
    pub percent: Option<f64>,
    pub scaling: RotaryScaling,
}

/// Kinds of scaling, by their names in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeKind {
    None,
    Linear,
    Llama3,
    Yarn,
}

impl RopeKind {
    pub const ALL: [(&'static str, Self); 4] = [
        ("default", Self::None),
        ("linear", Self::Linear),
        ("llama3", Self::Llama3),
        ("yarn", Self::Yarn),
    ];
}

/// Settings of the object, of transformers' `modeling_rope_utils`.
pub const ROPE_KEYS: &[Key] = &[
    Key::honoured("rope_type", "default", "linear").with(&[("factor", "2.0")]),
    Key::alias("type", "rope_type"),
    Key::honoured("rope_theta", "null", "500.0"),
    Key::honoured("partial_rotary_factor", "null", "0.5"),
    Key::honoured("factor", "null", "3.0").with(&[("rope_type", "linear")]),
    Key::honoured("low_freq_factor", "null", "2.0").with(LLAMA3),
    Key::honoured("high_freq_factor", "null", "5.0").with(LLAMA3),
    Key::honoured("original_max_position_embeddings", "null", "8").with(YARN),
    Key::honoured("beta_fast", "32", "20").with(YARN),
    Key::honoured("beta_slow", "1", "2").with(YARN),
    Key::honoured("attention_factor", "null", "1.5").with(YARN),
    Key::honoured("truncate", "true", "false").with(YARN),
    // YaRN's, in another form.
    Key::only_saying("mscale", &["null"], USE_ATTENTION_FACTOR),
    Key::only_saying("mscale_all_dim", &["null"], USE_ATTENTION_FACTOR),
    // Each kind of layer with a rope of its own.
    Key::only("full_attention", &["null"]),
    Key::only("sliding_attention", &["null"]),
    Key::idle("finetuned", "false"),
    Key::idle("long_factor", "null"),
    Key::idle("short_factor", "null"),
];

const LLAMA3: &[(&str, &str)] = &[
    ("rope_type", "llama3"),
    ("factor", "2.0"),
    ("low_freq_factor", "1.0"),
    ("high_freq_factor", "4.0"),
];
const YARN: &[(&str, &str)] = &[("rope_type", "yarn"), ("factor", "2.0")];
const USE_ATTENTION_FACTOR: &str = "write their quotient's effect as attention_factor";

impl FileRope {
    /// Takes `rope_parameters`, as transformers 5 has it, or `rope_scaling`, as transformers 4; positions up to
    /// `max_positions` are those of the training before if nothing is said of it.
    ///
    /// # Errors
    /// Both are there and differ; a scaling is none of `kinds`, or a number of it is missing or not valid.
    pub fn read(
        fields: &mut Fields,
        kinds: &[(&str, RopeKind)],
        max_positions: usize,
    ) -> Result<Self, HuggingFaceError> {
        // An empty one is none.
        if fields.look("rope_scaling").is_some_and(|scaling| *scaling == json!({})) {
            fields.leave("rope_scaling");
        }
        let field = match (fields.look("rope_parameters"), fields.look("rope_scaling").cloned()) {
            (None, _) => "rope_scaling",
            (Some(_), None) => "rope_parameters",
            (Some(_), Some(scaling)) => {
                fields.agree("rope_parameters", &scaling, "rope_scaling")?;
                "rope_scaling"
            }
        };
        let Some(mut rope) = fields.object(field, ROPE_KEYS)? else {
            return Ok(Self {
                base: None,
                percent: None,
                scaling: RotaryScaling::None,
            });
        };
        let found = Self {
            base: rope.optional_number("rope_theta", ABOVE_1)?,
            percent: rope.optional_number("partial_rotary_factor", SHARE)?,
            scaling: read_scaling(&mut rope, kinds, max_positions)?,
        };
        fields.close(rope)?;
        Ok(found)
    }
}

/// Numbers above 1.
pub const ABOVE_1: std::ops::Range<f64> = 1.0 + f64::EPSILON..f64::MAX;
/// Numbers above 0 and up to 1.
pub const SHARE: std::ops::Range<f64> = f64::MIN_POSITIVE..1.0 + f64::EPSILON;
const ABOVE_0: std::ops::Range<f64> = f64::MIN_POSITIVE..f64::MAX;

fn read_scaling(
    rope: &mut Fields,
    kinds: &[(&str, RopeKind)],
    max_positions: usize,
) -> Result<RotaryScaling, HuggingFaceError> {
    let kind = rope.choice("rope_type", kinds)?;
    let original = "original_max_position_embeddings";
    let scaling = match kind {
        RopeKind::None => RotaryScaling::None,
        RopeKind::Linear => RotaryScaling::Linear {
            factor: rope.number("factor", ABOVE_0)?,
        },
        RopeKind::Llama3 => {
            let low_freq_factor = rope.number("low_freq_factor", ABOVE_0)?;
            RotaryScaling::Llama3 {
                factor: rope.number("factor", ABOVE_0)?,
                low_freq_factor,
                high_freq_factor: rope.number("high_freq_factor", low_freq_factor + f64::EPSILON..f64::MAX)?,
                original_max_position: rope.optional_size(original)?.unwrap_or(max_positions),
            }
        }
        RopeKind::Yarn => {
            let beta_slow = rope.number("beta_slow", ABOVE_0)?;
            RotaryScaling::Yarn {
                factor: rope.number("factor", ABOVE_0)?,
                beta_fast: rope.number("beta_fast", beta_slow + f64::EPSILON..f64::MAX)?,
                beta_slow,
                original_max_position: rope.optional_size(original)?.unwrap_or(max_positions),
                attention_factor: rope.optional_number("attention_factor", ABOVE_0)?,
                truncate: rope.flag("truncate")?,
            }
        }
    };
    Ok(scaling)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Map, Value};

    use super::*;
    use crate::huggingface::checks;

    const OUTER: &[Key] = &[
        Key::honoured("rope_parameters", "null", "{}"),
        Key::honoured("rope_scaling", "null", "{}"),
    ];

    fn read(fields: Value) -> Result<(FileRope, Vec<String>), HuggingFaceError> {
        let Value::Object(fields) = fields else {
            panic!("an object")
        };
        let mut fields = Fields::new(Path::new("config.json"), fields, OUTER.iter().collect())?;
        let rope = FileRope::read(&mut fields, &RopeKind::ALL, 64)?;
        Ok((rope, fields.finish()?))
    }

    #[test]
    fn each_setting_is_honoured_refused_or_listed() {
        checks::expect_table(
            &ROPE_KEYS.iter().collect::<Vec<_>>(),
            "rope_parameters.",
            |object: Map<String, Value>| read(json!({ "rope_parameters": object })).map_err(|error| error.to_string()),
        );
    }

    #[test]
    fn numbers_that_are_missing_are_named_or_have_their_default() {
        let error = |fields: Value| read(fields).unwrap_err().to_string();
        assert_eq!(
            error(json!({"rope_scaling": {"type": "linear"}})),
            "config.json: rope_scaling.factor is null: expected a number above 0"
        );
        assert!(error(json!({"rope_scaling": {"type": "dynamic"}})).ends_with(
            "rope_scaling.type is \"dynamic\": expected \"default\" or \"linear\" or \"llama3\" or \"yarn\""
        ));
        let both = json!({"rope_scaling": {"type": "default"}, "rope_parameters": {"rope_theta": 5.0}});
        assert!(error(both).contains("as rope_scaling"));
        let empty = json!({"rope_scaling": {}, "rope_parameters": {"rope_theta": 5.0}});
        assert_eq!(read(empty).expect("valid").0.base, Some(5.0));
        // The longest sequence is that of the training before.
        let (rope, _) = read(json!({"rope_scaling": {"type": "yarn", "factor": 2.0}})).expect("valid");
        let expected = RotaryScaling::Yarn {
            factor: 2.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_max_position: 64,
            attention_factor: None,
            truncate: true,
        };
        assert_eq!(rope.scaling, expected);
    }
}
