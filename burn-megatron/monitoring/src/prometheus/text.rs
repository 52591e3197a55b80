//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

/// What a metric does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, from zero when the process starts.
    Counter,
    /// It rises and falls.
    Gauge,
}

/// A metric, with a value for each set of labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name: letters, digits and `_`; a counter's ends in `_total`.
    pub name: &'static str,
    /// What it is, in a line.
    pub help: &'static str,
    /// What it does.
    pub kind: Kind,
    /// Its values; without any it is left out.
    pub samples: Vec<Sample>,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: f64,
}

impl From<f64> for Sample {
    fn from(value: f64) -> Self {
        Self {
            labels: Vec::new(),
            value,
        }
    }
}

/// Returns metrics as text.
pub fn encode(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let Family { name, help, .. } = family;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // A String takes everything.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for sample in &family.samples {
            text.push_str(name);
            for (place, (label, value)) in sample.labels.iter().enumerate() {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                let start = if place == 0 { '{' } else { ',' };
                let _ = write!(text, "{start}{label}=\"{value}\"");
            }
            if !sample.labels.is_empty() {
                text.push('}');
            }
            let _ = writeln!(text, " {}", number(sample.value));
        }
    }
    text
}

/// A number as Go reads it: the shortest that is the same when it is read.
fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value if value != 0.0 && !(1e-4..1e17).contains(&value.abs()) => format!("{value:e}"),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_that_of_the_format() {
        let families = [
            Family {
                name: "burn_megatron_tokens_total",
                help: "Tokens trained on.",
                kind: Kind::Counter,
                samples: vec![4096.0.into()],
            },
            Family {
                name: "burn_megatron_none",
                help: "Left out.",
                kind: Kind::Gauge,
                samples: vec![],
            },
            Family {
                name: "burn_megatron_validation_loss",
                help: "A back\\slash and\na line.",
                kind: Kind::Gauge,
                samples: vec![
                    Sample {
                        labels: vec![("set", "a \"b\" \\ c\nd".to_owned()), ("split", "x".to_owned())],
                        value: 2.5,
                    },
                    f64::NAN.into(),
                ],
            },
        ];
        assert_eq!(
            encode(&families),
            "# HELP burn_megatron_tokens_total Tokens trained on.\n\
             # TYPE burn_megatron_tokens_total counter\n\
             burn_megatron_tokens_total 4096\n\
             # HELP burn_megatron_validation_loss A back\\\\slash and\\na line.\n\
             # TYPE burn_megatron_validation_loss gauge\n\
             burn_megatron_validation_loss{set=\"a \\\"b\\\" \\\\ c\\nd\",split=\"x\"} 2.5\n\
             burn_megatron_validation_loss NaN\n"
        );
    }

    proptest! {
        #[test]
        fn numbers_are_read_back(value in any::<f64>()) {
            let text = number(value);
            let read: f64 = text.parse().unwrap();
            prop_assert!(read.to_bits() == value.to_bits() || value.is_nan() && read.is_nan(), "{}", text);
            prop_assert!(text.len() <= 24, "{}", text);
        }

        #[test]
        fn a_label_never_ends_its_line(value in "\\PC*[\"\\\\\n]\\PC*") {
            let sample = Sample { labels: vec![("set", value.clone())], value: 1.0 };
            let family = Family { name: "x", help: "x", kind: Kind::Gauge, samples: vec![sample] };
            let text = encode(&[family]);
            let lines: Vec<&str> = text.split('\n').collect();
            prop_assert_eq!(lines.len(), 4);
            let inside = lines[2].strip_prefix("x{set=\"").and_then(|rest| rest.strip_suffix("\"} 1")).unwrap();
            // Read from left to right, as Prometheus does.
            let mut read = String::new();
            let mut letters = inside.chars();
            while let Some(letter) = letters.next() {
                prop_assert_ne!(letter, '"');
                read.push(match letter {
                    '\\' => match letters.next() {
                        Some('n') => '\n',
                        Some(escaped) => escaped,
                        None => return Err(TestCaseError::fail("ends in a backslash")),
                    },
                    letter => letter,
                });
            }
            prop_assert_eq!(read, value);
        }
    }
}
