//! Batches of which each rank has loaded its samples, against those of one rank.

use std::sync::{Arc, Mutex};

use burn::backend::Autodiff;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};

use super::ranks::{DATA_2, DATA_2_TENSOR_2, Layout, TENSOR_2, on_mesh};
use crate::data::{LastBatch, placed_loader};
use crate::sharded::{AxisRole, CompareConfig, Mesh, Plan, Run, Sharded, backward, compare, describe};

type Batch<B> = (Tensor<B, 2>, Tensor<B, 1, Int>);

const DATA_3: Layout = &[(AxisRole::Data, 3)];
const DATA_2_DATA_2: Layout = &[(AxisRole::Data, 2), (AxisRole::Data, 2)];

/// Makes batches of numbers, and notes which it was given.
#[derive(Clone, Default)]
struct Numbers {
    seen: Arc<Mutex<Vec<usize>>>,
}

impl<B: Backend> Batcher<B, usize, Batch<B>> for Numbers {
    fn batch(&self, items: Vec<usize>, device: &B::Device) -> Batch<B> {
        self.seen.lock().unwrap().extend(&items);
        let count = items.len();
        let row = |&item: &usize| [item as f32, (item as f32).sin(), 0.5 * item as f32];
        let rows: Vec<f32> = items.iter().flat_map(row).collect();
        let labels: Vec<i32> = items.iter().map(|&item| item as i32).collect();
        (
            Tensor::from_data(TensorData::new(rows, [count, 3]), device),
            Tensor::from_data(TensorData::new(labels, [count]), device),
        )
    }
}

fn samples(count: usize) -> InMemDataset<usize> {
    InMemDataset::new((0..count).collect())
}

fn loader(numbers: &Numbers, mesh: &Mesh, count: usize, last: LastBatch) -> Arc<dyn DataLoader<B, Batch<B>>> {
    placed_loader(numbers.clone(), mesh)
        .batch_size(8)
        .shuffle(7)
        .num_workers(2)
        .last_batch(last)
        .build(samples(count))
        .unwrap()
}

type B = Sharded<Flex>;

fn values<B: Backend>((rows, labels): Batch<B>) -> (TensorData, Vec<i64>) {
    (rows.into_data(), labels.into_data().iter::<i64>().collect())
}

/// The last batch of 23 samples is an odd one, that of 25 has fewer samples than there are ranks.
#[test]
fn placed_batches_are_those_of_burns_loader_and_each_rank_loads_its_own() {
    for axes in [DATA_2, DATA_3, DATA_2_DATA_2, TENSOR_2, DATA_2_TENSOR_2] {
        for count in [23, 25] {
            let burn = DataLoaderBuilder::<Flex, _, _>::new(Numbers::default())
                .batch_size(8)
                .shuffle(7)
                .build(samples(count));
            let expected: Vec<_> = burn.iter().chain(burn.iter()).map(values).collect();
            let ranks = on_mesh(axes, |_, mesh| {
                let numbers = Numbers::default();
                let loader = loader(&numbers, mesh, count, LastBatch::Share);
                assert_eq!(loader.num_items(), count);
                let batches = loader.iter().chain(loader.iter());
                let all: Vec<_> = batches.map(values).collect();
                assert_eq!(all, expected, "{axes:?}, {count} samples");
                numbers.seen.lock().unwrap().len()
            });
            let data: usize = axes
                .iter()
                .filter(|axis| axis.0 == AxisRole::Data)
                .map(|axis| axis.1)
                .product();
            let replicas = ranks.len() / data;
            // Of each epoch a last batch of one sample is on all ranks.
            let more = if count == 25 { data - 1 } else { 0 };
            assert_eq!(ranks.iter().sum::<usize>(), 2 * (count + more) * replicas, "{axes:?}");
            assert!(
                ranks.iter().all(|&seen| seen <= 2 * count.div_ceil(data) + 4),
                "{ranks:?}"
            );
        }
    }
}

#[test]
fn a_batch_is_cut_over_the_data_axes_and_the_last_one_may_be_left_out() {
    on_mesh(DATA_2_TENSOR_2, |_, mesh| {
        let loader = loader(&Numbers::default(), mesh, 23, LastBatch::Drop);
        let batches: Vec<_> = loader.iter().map(|(rows, _)| describe(&rows)).collect();
        assert_eq!(batches, ["[8, 3] F32, S(0) R"; 2]);
        assert_eq!(loader.num_items(), 16);
        // Of all ranks, so that a batch is one of the whole job.
        let slice = loader.slice(3, 14);
        let rows: Vec<usize> = slice.iter().map(|(rows, _)| rows.dims()[0]).collect();
        assert_eq!((rows.as_slice(), slice.num_items()), (&[8, 3][..], 11));
        let mut iterator = loader.iter();
        iterator.next();
        assert_eq!(iterator.progress().items_processed, 8);
    });
}

#[test]
fn training_on_placed_batches_is_as_on_one_rank() {
    type B = Autodiff<Sharded<Flex>>;
    for axes in [DATA_2, DATA_3] {
        let comparisons = on_mesh(axes, |_, mesh| {
            let program = |run: &mut Run| {
                let mut model: Linear<B> = run.parallelize(LinearConfig::new(3, 2).init(&FlexDevice))?;
                let mut optimizer = AdamWConfig::new().init();
                let loader = placed_loader::<B, _, _>(Numbers::default(), run.mesh())
                    .batch_size(5)
                    .shuffle(3)
                    .build(samples(12))?;
                for (rows, labels) in loader.iter() {
                    let labels = labels.float().unsqueeze_dim::<2>(1);
                    let loss = (model.forward(rows).tanh() - labels.sin()).powi_scalar(2).mean();
                    let (loss, gradients) = backward(loss, &model)?;
                    run.judge(&loss, &gradients, &model)?;
                    model = optimizer.step(1e-2, model, gradients);
                }
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(model)
            };
            let layouts = [crate::sharded::Layout::new("data", mesh, Plan::new())];
            compare(&CompareConfig::new(), &layouts, &FlexDevice, program)
                .unwrap()
                .remove(0)
        });
        assert_eq!(comparisons[0].judgement.num_steps, 3);
        assert!(comparisons[0].is_equal(), "{}", comparisons[0]);
    }
}
