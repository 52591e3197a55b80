//! The gradients that the wrapper returns: the mean over all samples, however they are shared out.

use std::collections::BTreeMap;

use anyhow::ensure;
use burn_megatron::data_parallel::ReducedGradients;

use super::nets::{ConvNet, Net, OddNet, named, plain_step, same_values, wrap, wrapped_step};
use super::{ALL, BOTH_TYPES, Check, F64, SEVERAL, checks};
use crate::parity::cases::comparison::{Closeness, Scene};

pub const CHECKS: &[Check] = checks! {
    a_thawed_parameter_gets_its_gradient: ALL, F64;
    gradients_of_a_conv_net_are_the_mean_over_all_samples: ALL, F64 => mean::<ConvNet>;
    gradients_of_odd_parameters_are_the_mean_over_all_samples: ALL, F64;
    bucket_sizes_change_no_bit_of_a_conv_net: SEVERAL, BOTH_TYPES => buckets::<ConvNet>;
    bucket_sizes_change_no_bit_of_odd_parameters: SEVERAL, BOTH_TYPES => buckets::<OddNet>;
};

/// One element a bucket, some, and everything in one.
const BUCKET_SIZES: [usize; 3] = [1, 40, 1_000_000];

/// The gradients by parameter.
pub fn by_name(reduced: &ReducedGradients) -> BTreeMap<String, Vec<f64>> {
    let entries = reduced.entries().iter();
    entries
        .map(|entry| (entry.name.clone(), reduced.values(entry)))
        .collect()
}

/// Two steps, so that the second finds buckets that have been used.
fn mean<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    let net = M::new(scene, "net");
    let mut wrapped = wrap(M::new(scene, "net"), scene, 40)?;
    for step in 0..2 {
        let reduced = wrapped_step(&mut wrapped, scene, step)?;
        let expected = named(&net, Some(&plain_step(&net, scene, step))).gradients;
        same_values(scene, Closeness::Pass, &by_name(&reduced), &expected)?;
    }
    Ok(())
}

/// The wrapper has zeros for a parameter that is never used, plain burn has nothing; the frozen one is in neither.
fn gradients_of_odd_parameters_are_the_mean_over_all_samples(scene: &Scene) -> anyhow::Result<()> {
    let net = OddNet::new(scene, "net");
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 40)?;
    for step in 0..2 {
        let reduced = wrapped_step(&mut wrapped, scene, step)?;
        let mut gradients = by_name(&reduced);
        for name in ["never.weight", "never.bias"] {
            let unused = gradients.remove(name);
            let zero = unused.is_some_and(|values| values.iter().all(|&value| value == 0.0));
            ensure!(zero, "{name} is never used and has a gradient");
        }
        let expected = named(&net, Some(&plain_step(&net, scene, step))).gradients;
        ensure!(expected.contains_key("sometimes.weight") && !expected.contains_key("frozen.weight"));
        same_values(scene, Closeness::Pass, &gradients, &expected)?;
    }
    Ok(())
}

/// A frozen parameter that an update makes a trained one.
fn a_thawed_parameter_gets_its_gradient(scene: &Scene) -> anyhow::Result<()> {
    let thaw = |mut net: OddNet| {
        net.frozen.weight = net.frozen.weight.set_require_grad(true);
        net
    };
    let net = thaw(OddNet::new(scene, "net"));
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 40)?;
    wrapped_step(&mut wrapped, scene, 0)?;
    wrapped.update(thaw)?;
    let mut gradients = by_name(&wrapped_step(&mut wrapped, scene, 1)?);
    gradients.retain(|name, _| !name.starts_with("never."));
    let expected = named(&net, Some(&plain_step(&net, scene, 1))).gradients;
    ensure!(expected.contains_key("frozen.weight") && !expected.contains_key("frozen.bias"));
    same_values(scene, Closeness::Pass, &gradients, &expected)
}

fn buckets<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    let mut first = None;
    for bucket_size in BUCKET_SIZES {
        let mut wrapped = wrap(M::new(scene, "net"), scene, bucket_size)?;
        let gradients = by_name(&wrapped_step(&mut wrapped, scene, 0)?);
        match &first {
            None => first = Some(gradients),
            Some(first) => same_values(scene, Closeness::Bits, &gradients, first)?,
        }
    }
    Ok(())
}
