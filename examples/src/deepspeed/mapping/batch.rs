//! Batch sizes: `train_batch_size = train_micro_batch_size_per_gpu · gradient_accumulation_steps · data-parallel size`.

use super::Mapping;
use crate::deepspeed::ConfigError;
use crate::deepspeed::document::Setting;

const TOTAL: &str = "train_batch_size";
const MICRO: &str = "train_micro_batch_size_per_gpu";
const STEPS: &str = "gradient_accumulation_steps";
const TOTAL_FLAG: &str = "--global-batch-size";
const MICRO_FLAG: &str = "--micro-batch-size";

/// A size, and the key or flag that it is from.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    value: u64,
}

/// Adds both sizes; two of the three keys, or a key and a flag, give the third. With one alone, DeepSpeed accumulates
/// over one step.
pub(super) fn map(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    let settings = [TOTAL, MICRO, STEPS].map(|key| mapping.document.count(key));
    if settings == [Setting::Absent; 3] {
        return Ok(());
    }
    let total = direct(mapping, TOTAL, TOTAL_FLAG)?;
    let micro = direct(mapping, MICRO, MICRO_FLAG)?;
    let [.., steps] = settings;
    let steps = steps.value().map(|value| Size { name: STEPS, value });
    let any_auto = settings.contains(&Setting::Auto);
    let ranks = mapping.data_parallel_size;
    match (total, micro, steps) {
        (Some(total), Some(micro), Some(steps)) => {
            check_all(total, micro, steps, ranks)?;
            mapping.use_key(STEPS);
        }
        (Some(total), Some(micro), None) => {
            divide(total, Some(micro), ranks)?;
        }
        (Some(total), None, Some(steps)) => {
            let value = divide(total, Some(steps), ranks)?;
            add_derived(mapping, MICRO_FLAG, value, [total, steps])?;
        }
        (None, Some(micro), Some(steps)) => {
            let value = multiply([micro.value, steps.value, ranks])?;
            add_derived(mapping, TOTAL_FLAG, value, [micro, steps])?;
        }
        (Some(total), None, None) if !any_auto => {
            let value = divide(total, None, ranks)?;
            add_derived(mapping, MICRO_FLAG, value, [total, total])?;
        }
        (None, Some(micro), None) if !any_auto => {
            let value = multiply([micro.value, ranks])?;
            add_derived(mapping, TOTAL_FLAG, value, [micro, micro])?;
        }
        (None, None, Some(_)) => {
            return Err(ConfigError::Missing {
                path: format!("{TOTAL} or {MICRO}"),
                why: format!("{STEPS} alone gives no batch size; give one of them, or {TOTAL_FLAG} or {MICRO_FLAG}"),
            });
        }
        _ => {}
    }
    Ok(())
}

/// The size that a key says, which becomes a flag, or that a flag says.
fn direct(mapping: &mut Mapping<'_>, key: &'static str, flag: &'static str) -> Result<Option<Size>, ConfigError> {
    if let Some(value) = mapping.document.count(key).value() {
        mapping.add(flag, value, &[key])?;
        return Ok(Some(Size { name: key, value }));
    }
    let given = mapping.line.value(flag).and_then(|value| value.parse().ok());
    let given = given.filter(|&value| value > 0);
    Ok(given.map(|value| Size { name: flag, value }))
}

fn add_derived(mapping: &mut Mapping<'_>, flag: &'static str, value: u64, from: [Size; 2]) -> Result<(), ConfigError> {
    let mut keys = from.map(|size| size.name).to_vec();
    keys.dedup();
    mapping.add(flag, value, &keys)
}

fn check_all(total: Size, micro: Size, steps: Size, ranks: u64) -> Result<(), ConfigError> {
    let product = multiply([micro.value, steps.value, ranks])?;
    if product == total.value {
        return Ok(());
    }
    let mut valid = vec![format!("{} {product}", total.name)];
    for (size, other) in [(micro, steps), (steps, micro)] {
        let unit = multiply([other.value, ranks])?;
        if total.value.is_multiple_of(unit) {
            valid.push(format!("{} {}", size.name, total.value / unit));
        }
    }
    Err(ConfigError::Batch(format!(
        "{} {} must be {} {} * {} {} * data-parallel size {ranks} = {product}; valid with the other two: {}",
        total.name,
        total.value,
        micro.name,
        micro.value,
        steps.name,
        steps.value,
        valid.join(", or ")
    )))
}

/// Returns the share of the whole batch that each of `factor` · `ranks` has.
fn divide(total: Size, factor: Option<Size>, ranks: u64) -> Result<u64, ConfigError> {
    let unit = multiply([factor.map_or(1, |factor| factor.value), ranks])?;
    if total.value.is_multiple_of(unit) {
        return Ok(total.value / unit);
    }
    let below = total.value / unit * unit;
    let nearest = match (below, below.checked_add(unit)) {
        (0, Some(above)) => format!("{above}"),
        (below, Some(above)) => format!("{below} and {above}"),
        (below, None) => format!("{below}"),
    };
    let factor = factor.map_or_else(String::new, |factor| format!("{} {} * ", factor.name, factor.value));
    Err(ConfigError::Batch(format!(
        "{} {} must be a multiple of {factor}data-parallel size {ranks} = {unit}; nearest: {nearest}",
        total.name, total.value
    )))
}

fn multiply<const N: usize>(factors: [u64; N]) -> Result<u64, ConfigError> {
    let product = factors
        .iter()
        .try_fold(1u64, |product, &factor| product.checked_mul(factor));
    product.ok_or_else(|| ConfigError::Batch(format!("batch sizes are too large: {factors:?} multiplied")))
}
