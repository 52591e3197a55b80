//! What happens to weights when a model is wrapped: all ranks take the first one's, or a difference is refused.

use anyhow::{Context as _, ensure};
use burn::tensor::Tensor;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, WeightSync};
use burn_megatron::parameters::{list_parameters, read_host};

use super::nets::{ConvNet, Net, OddNet, named, same_values, sgd, wrap, wrapped_step};
use super::{ALL, BOTH_TYPES, Check, DP2, DP4, Failure, SEVERAL, checks};
use crate::parity::cases::comparison::{Closeness, Scene};

pub const CHECKS: &[Check] = checks! {
    all_ranks_start_from_the_weights_of_the_first: SEVERAL, BOTH_TYPES => broadcast::<ConvNet>;
    frozen_parameters_start_from_those_of_the_first_too: SEVERAL, BOTH_TYPES => broadcast::<OddNet>;
    equal_weights_are_verified_and_kept: ALL, BOTH_TYPES;
};

pub const FAILURES: &[Failure] = &[
    Failure {
        name: "a_different_weight_is_refused_by_name",
        run: verify_different_bias,
        layout: DP2,
        messages: &["parameter head.bias differs between rank 0 and rank 1"],
    },
    Failure {
        name: "the_rank_with_the_different_weight_is_named",
        run: verify_different_bias,
        layout: DP4,
        messages: &["parameter head.bias differs between rank 0 and rank 2"],
    },
    Failure {
        name: "replicas_that_drift_apart_are_refused_by_name",
        run: drift,
        layout: DP2,
        messages: &["parameter twice.weight differs between rank 0 and rank 1"],
    },
    Failure {
        name: "replicas_that_drift_apart_are_refused_at_the_next_check",
        run: drift_between_checks,
        layout: DP2,
        messages: &["after step 2: parameter twice.weight differs between rank 0 and rank 1"],
    },
];

fn broadcast<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    let rank = scene.context.rank();
    let start = M::new(scene, &format!("net of rank {rank}"));
    let trained = |net: &M| -> Vec<bool> {
        let parameters = list_parameters(net);
        parameters.iter().map(|parameter| parameter.requires_grad).collect()
    };
    let expected_trained = trained(&start);
    let wrapped = wrap(start, scene, 40)?;
    let first = M::new(scene, "net of rank 0");
    let expected = named(&first, None).values;
    same_values(scene, Closeness::Bits, &named(wrapped.module(), None).values, &expected)?;
    ensure!(
        trained(wrapped.module()) == expected_trained,
        "wrapping changed what is trained"
    );
    wrapped.check_replicas()?;
    Ok(())
}

fn verified<M: Net>(net: M, scene: &Scene) -> anyhow::Result<DistributedDataParallel<M>> {
    let config = DataParallelConfig::new().with_weight_sync(WeightSync::Verify);
    Ok(DistributedDataParallel::new(net, &scene.context, config)?)
}

fn equal_weights_are_verified_and_kept(scene: &Scene) -> anyhow::Result<()> {
    let net = ConvNet::new(scene, "net");
    let expected = named(&net, None).values;
    let wrapped = verified(net, scene)?;
    same_values(scene, Closeness::Bits, &named(wrapped.module(), None).values, &expected)
}

/// One bit of one bias differs, on one rank, neither the first nor, of four, the last.
fn verify_different_bias(scene: &Scene) -> anyhow::Result<()> {
    let mut net = ConvNet::new(scene, "net");
    let size = scene.context.data_group().size();
    if scene.context.rank() == size / 2 {
        net.head.bias = net.head.bias.map(|bias| bias.map(|tensor| nudge(scene, tensor)));
    }
    verified(net, scene)?;
    Ok(())
}

fn drift(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 40)?;
    wrapped_step(&mut wrapped, scene, 0)?;
    wrapped.check_replicas()?;
    change_one_rank(&mut wrapped, scene)?;
    wrapped.check_replicas()?;
    Ok(())
}

fn drift_between_checks(scene: &Scene) -> anyhow::Result<()> {
    let config = DataParallelConfig::new().with_check_replicas_interval(2);
    let mut wrapped = DistributedDataParallel::new(OddNet::new(scene, "net"), &scene.context, config)?;
    let train_step = |wrapped: &mut DistributedDataParallel<_>, step| {
        let gradients = wrapped_step(wrapped, scene, step)?;
        Ok::<_, anyhow::Error>(wrapped.step(0.01, &mut sgd(), gradients)?)
    };
    train_step(&mut wrapped, 0)?;
    change_one_rank(&mut wrapped, scene)?;
    train_step(&mut wrapped, 1).context("before the check")?;
    train_step(&mut wrapped, 2)
}

fn change_one_rank(wrapped: &mut DistributedDataParallel<OddNet>, scene: &Scene) -> anyhow::Result<()> {
    wrapped.update(|mut net| {
        if scene.context.rank() == 1 {
            net.twice.weight = net.twice.weight.map(|tensor| nudge(scene, tensor));
        }
        net
    })?;
    Ok(())
}

/// The tensor with the last bit of its first element turned.
fn nudge<const D: usize>(scene: &Scene, tensor: Tensor<D>) -> Tensor<D> {
    let shape = tensor.dims();
    let mut values = read_host(tensor);
    values[0] = f64::from_bits(values[0].to_bits() ^ 1);
    scene.tensor(values, shape).require_grad()
}
