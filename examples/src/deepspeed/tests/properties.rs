//! What holds of every configuration.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

use crate::deepspeed::keys::{Form, Key, TOP};
use crate::deepspeed::translate;
use burn_megatron_data::names::Effect;

/// A value of a key: mostly a valid one.
fn value(form: Form) -> BoxedStrategy<Value> {
    let junk = select(vec![
        json!("auto"),
        json!(null),
        json!(-1),
        json!("x"),
        json!([]),
        json!({"enabled": true}),
    ]);
    let valid = match form {
        Form::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Form::Count(least) => prop_oneof![
            (least..least + 70).prop_map(Value::from),
            select(vec![json!(5e8), json!(u64::MAX)])
        ]
        .boxed(),
        Form::Interval => (1..9_u64).prop_map(Value::from).boxed(),
        Form::Number(from, to) => (from..=to.min(1e3)).prop_map(Value::from).boxed(),
        Form::Betas => Just(json!([0.9, 0.99])).boxed(),
        Form::Text => select(vec![
            json!("Adam"),
            json!("SGD"),
            json!("Lion"),
            json!("Muon"),
            json!("Adafactor"),
            json!("/a"),
        ])
        .boxed(),
        Form::Choice(names) => select(names).prop_map(Value::from).boxed(),
        Form::Section(keys) => section(keys).boxed(),
        Form::SectionOrBool(keys) => prop_oneof![9 => section(keys), 1 => any::<bool>().prop_map(Value::from)].boxed(),
        Form::Any | Form::With(..) => Just(json!({"enabled": false})).boxed(),
    };
    prop_oneof![200 => valid, 1 => junk].boxed()
}

/// An object of some of the keys.
fn section(keys: &'static [Key]) -> impl Strategy<Value = Value> {
    let is_mapped = |key: &&Key| matches!(key.effect, Effect::Means(_) | Effect::Read);
    let mapped: Vec<Key> = keys.iter().filter(is_mapped).copied().collect();
    let (most, all) = (0..=mapped.len(), 0..=keys.len().min(12));
    // Mostly those that have an effect.
    let some = prop_oneof![9 => subsequence(mapped, most), 1 => subsequence(keys, all)];
    some.prop_flat_map(|keys| {
        let entries: Vec<_> = keys
            .into_iter()
            .map(|key| value(key.form).prop_map(|value| (key.name.to_owned(), value)))
            .collect();
        entries.prop_map(|entries| Value::Object(Map::from_iter(entries)))
    })
}

fn key_and_value() -> impl Strategy<Value = (Key, Value)> {
    select(TOP).prop_flat_map(|key| (Just(key), value(key.form)))
}

proptest! {
    #[test]
    fn any_known_keys_become_flags_or_an_error(
        document in section(TOP),
        given in subsequence(
            vec!["--fp16", "--bf16", "--lr=0.1", "--micro-batch-size=3", "--world-size=4", "--nvme-path=/a"],
            0..4,
        ),
    ) {
        let words: Vec<String> = given.into_iter().map(str::to_owned).collect();
        match translate(&document.to_string(), &words, None) {
            Ok(report) => {
                for flag in &report.flags {
                    prop_assert!(flag.word().starts_with("--") && !flag.from.is_empty());
                    // No flag twice.
                    prop_assert_eq!(report.flags.iter().filter(|other| other.flag == flag.flag).count(), 1);
                }
                prop_assert!(report.to_string().ends_with('\n'));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "[\\[\\]{}:,\"a-z0-9\\\\ .e-]{0,60}") {
        let _ = translate(&text, &[], None);
    }

    #[test]
    fn each_key_alone_is_taken_or_refused_by_its_path((key, value) in key_and_value()) {
        let document = json!({key.name: value});
        if let Err(error) = translate(&document.to_string(), &[], None) {
            prop_assert!(error.to_string().contains(key.name), "{}", error);
        }
    }
}
