//! Batches and losses of ranks, compared in the first step and at an interval.

use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;

use super::new_device;
use super::ranks::{DATA_2, TENSOR_2, on_mesh};
use crate::data_parallel::{DataParallelConfig, StepPart};
use crate::sharded::{AxisRole, Mesh, PlacedDataParallel, Plan, backward, distribute, parallelize};
use crate::topology::ParallelConfig;

/// Makes steps of a batch of ones and a loss that are multiplied by these numbers, and returns what went wrong.
fn steps(mesh: &Mesh, factors: &[[f32; 2]]) -> Vec<Option<String>> {
    let device = new_device().autodiff();
    device.seed(1);
    let model = parallelize(LinearConfig::new(3, 2).init(&device), &Plan::new(), mesh).expect("nothing is cut");
    let steps = factors.iter().map(|&[of_batch, of_loss]| {
        let input = Tensor::<2>::from_data([[of_batch; 3]; 4], &device);
        let input = distribute(input, mesh, AxisRole::Data, 0);
        let loss = model.forward(input).powi_scalar(2).mean() * of_loss;
        backward(loss, &model).err().map(|error| error.to_string())
    });
    steps.collect()
}

#[test]
fn a_batch_that_differs_by_rank_is_named_in_the_steps_that_are_due() {
    let errors = on_mesh(DATA_2, |world, mesh| {
        let own = [1.0 + world.rank() as f32, 1.0];
        let first = steps(mesh, &[own]).remove(0).expect("the first step is compared");
        let mesh_of = |interval| mesh.clone().with_check_inputs_interval(interval);
        assert_eq!(steps(&mesh_of(0), &[own]), [None]);
        let later = steps(&mesh_of(2), &[[1.0; 2], own, own]);
        let found: Vec<bool> = later.iter().map(Option::is_some).collect();
        assert_eq!(found, [false, false, true], "{later:?}");
        first
    });
    for error in errors {
        let expected = "rank 0 and rank 1 gave distribute a batch of shape [4, 3] of different elements";
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("Mesh::with_check_inputs_interval(0)"), "{error}");
    }
}

/// The model is whole, and so is its loss: its mesh is known from where it was placed.
#[test]
fn a_loss_that_differs_by_rank_is_named() {
    let errors = on_mesh(TENSOR_2, |world, mesh| {
        steps(mesh, &[[1.0, 1.0 + world.rank() as f32]]).remove(0)
    });
    for error in errors {
        let error = error.expect("the first step is compared");
        let words = ["the loss is ", " on rank 0 and ", " on rank 1"];
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
    }
}

#[test]
fn a_batch_that_differs_by_rank_is_named_in_distributed_data_parallel() {
    let errors = on_mesh(DATA_2, |world, mesh| {
        let device = new_device().autodiff();
        device.seed(1);
        let context = ParallelConfig::new().init(world).expect("two ranks");
        let model = parallelize(LinearConfig::new(3, 2).init(&device), &Plan::new(), mesh).expect("nothing is cut");
        let [compared, not] = [1, 0].map(|interval| {
            let config = DataParallelConfig::new().with_check_inputs_interval(interval);
            let mut model = PlacedDataParallel::new(model.clone(), mesh, &context, config).expect("it is placed");
            let input = Tensor::<2>::from_data([[1.0 + world.rank() as f32; 3]; 4], &device);
            let input = distribute(input, mesh, AxisRole::Data, 0);
            let passed = model.backward(StepPart::Last, |model: Linear| {
                model.forward(input).powi_scalar(2).mean()
            });
            passed.err().map(|error| error.to_string())
        });
        assert_eq!(not, None);
        compared.expect("the first step is compared")
    });
    for error in errors {
        let expected = "rank 0 and rank 1 gave distribute a batch of shape [4, 3] of different elements";
        assert!(error.contains(expected), "{error}");
    }
}
