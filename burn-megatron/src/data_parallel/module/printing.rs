//! What is printed of a module, a context and a wrapper that have communicated: which groups they have, and no record
//! of calls.

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::collectives::{ProcessGroup, ReduceOp};
use crate::context::ParallelContext;
use crate::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use crate::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, LayerNorm, LayerNormConfig, RowParallelLinear,
    RowParallelLinearConfig, VocabParallelEmbedding, VocabParallelEmbeddingConfig,
};
use crate::topology::ParallelConfig;
use burn_megatron_comm::rank_threads::{TIMEOUT, run_ranks};

/// One of each layer that has a group, and a group itself.
#[derive(Module, Debug)]
struct Net {
    embedding: VocabParallelEmbedding,
    norm: LayerNorm,
    column: ColumnParallelLinear,
    row: RowParallelLinear,
    #[module(skip)]
    group: ProcessGroup,
}

fn net(context: &ParallelContext) -> Net {
    let device = Device::flex().autodiff();
    Net {
        embedding: VocabParallelEmbeddingConfig::new(10, 4)
            .init(&device, &context.scope("embedding"))
            .unwrap(),
        norm: LayerNormConfig::new(4).init(&device, &context.scope("norm")),
        column: ColumnParallelLinearConfig::new(4, 8)
            .init(&device, &context.scope("column"))
            .unwrap(),
        row: RowParallelLinearConfig::new(8, 4)
            .init(&device, &context.scope("row"))
            .unwrap(),
        group: context.tensor_group().clone(),
    }
}

/// Makes enough calls to fill a flight recorder.
fn communicate(group: &ProcessGroup) {
    for _ in 0..300 {
        group.all_reduce(&mut [1.0_f32], ReduceOp::Sum).unwrap();
    }
}

/// Checks what is printed: it is short, names the group `times` times, and has nothing of a call.
fn expect_short(printed: &str, group: &str, times: usize, limit: usize) {
    assert!(printed.len() < limit, "{} bytes: {printed:.2000}", printed.len());
    assert_eq!(printed.matches(group).count(), times, "{group:?} in {printed}");
    assert!(
        !printed.contains("all_reduce") && !printed.contains("recorder"),
        "{printed}"
    );
}

#[test]
fn a_module_and_a_context_print_their_groups_and_no_calls() {
    run_ranks(2, TIMEOUT, |world| {
        let context = ParallelConfig::new().with_tensor_parallel_size(2).init(&world).unwrap();
        let group = format!("tensor group [0, 1], rank {}", world.rank());
        assert_eq!(context.tensor_group().to_string(), group);
        assert_eq!(format!("{:?}", context.tensor_group()), group);
        assert_eq!(context.data_group().to_string(), "group of one rank");
        let net = net(&context);
        communicate(context.tensor_group());
        communicate(context.world_group());
        for printed in [net.to_string(), format!("{net:?}"), format!("{net:#?}")] {
            expect_short(&printed, &group, 5, 4_000);
        }
        for printed in [format!("{context:?}"), format!("{context:#?}")] {
            expect_short(&printed, &group, 1, 2_000);
        }
        let printed = format!("{world:?}");
        assert!(!printed.contains("all_reduce"), "{printed}");
    });
}

#[test]
fn a_wrapper_prints_its_group_and_no_calls() {
    run_ranks(2, TIMEOUT, |world| {
        let context = ParallelConfig::new().init(&world).unwrap();
        let wrapped = DistributedDataParallel::new(net(&context), &context, DataParallelConfig::new()).unwrap();
        communicate(context.data_group());
        let group = format!("data group [0, 1], rank {}", world.rank());
        for printed in [format!("{wrapped:?}"), format!("{wrapped:#?}")] {
            // Of the context and of the buckets' reduction, each with all ranks and with those that share out shards.
            expect_short(&printed, &group, 4, 10_000);
        }
    });
}

/// However many parameters there are: gradients print how many, not which.
#[test]
fn gradients_print_how_many_they_are() {
    let context = ParallelContext::single(1);
    let layers: Vec<_> = (0..100).map(|_| net(&context).column).collect();
    let mut wrapped = DistributedDataParallel::new(layers, &context, DataParallelConfig::new()).unwrap();
    let input = Tensor::<2>::ones([2, 4], &Device::flex().autodiff());
    let forward = |layers: Vec<ColumnParallelLinear>| {
        let outputs = layers.iter().map(|layer| layer.forward(input.clone()).sum());
        outputs.reduce(|left, right| left + right).expect("there are layers")
    };
    wrapped.backward(StepPart::Last, forward).unwrap();
    let gradients = wrapped.gradients().unwrap();
    let printed = format!("{gradients:?}");
    assert!(printed.len() < 1_000, "{} bytes: {printed}", printed.len());
    assert!(
        printed.contains("parameters: 200") && printed.contains("group of one rank"),
        "{printed}"
    );
}
