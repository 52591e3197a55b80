//! The losses of documents that are packed into samples, with positions and attention of their own, are those of each
//! document alone.

use burn::tensor::{FloatDType, IntDType, set_default_dtypes};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::pipeline_parallel::{PipelineStage, StageOutput};
use burn_megatron::training::TokenBatch;
use cubecl_kernels::flash_attention::Documents;
use models::gpt::{Gpt, GptConfig};

const VOCAB: usize = 37;
const SEQ: usize = 13;
/// Of two samples.
const LENGTHS: [&[usize]; 2] = [&[5, 1, 7], &[13]];

fn losses(gpt: &Gpt<Flex>, micro_batch: &MicroBatch) -> Vec<f64> {
    let batch = TokenBatch::new(micro_batch, 1, 0);
    let StageOutput::Losses(losses) = PipelineStage::<Flex, 2>::forward(gpt, None, &batch) else {
        panic!("a whole model has losses");
    };
    losses.into_data().to_vec().expect("f64")
}

/// The tokens from `start` of a text that is the same every time.
fn micro_batch(start: usize, micro_batch_size: usize, seq_length: usize) -> MicroBatch {
    let token = |place: usize| ((place * 7 + place * place) % VOCAB) as i32;
    let end = start + micro_batch_size * seq_length;
    MicroBatch {
        tokens: (start..end).map(token).collect(),
        targets: (start..end).map(|place| token(place + 1)).collect(),
        loss_mask: None,
        position_ids: None,
        documents: None,
        sample_ids: (0..micro_batch_size as u64).collect(),
        micro_batch_size,
        seq_length,
    }
}

#[test]
fn losses_of_packed_documents_are_those_of_each() {
    let device = FlexDevice;
    set_default_dtypes::<Flex>(&device, FloatDType::F64, IntDType::I32).expect("set once");
    let config = GptConfig::new(2, 20, 2, SEQ, VOCAB).with_init_deviation(0.5);
    let gpt: Gpt<Flex> = config
        .init(&device, &ParallelContext::single(7))
        .expect("sizes that fit");
    let mut packed = micro_batch(0, 2, SEQ);
    let whole = losses(&gpt, &packed);
    let lengths = LENGTHS.map(<[usize]>::to_vec);
    packed.documents = Some(Documents::from_lengths(SEQ, &lengths).expect("whole samples"));
    packed.position_ids = Some(
        lengths
            .concat()
            .into_iter()
            .flat_map(|length| 0..length as i32)
            .collect(),
    );
    let found = losses(&gpt, &packed);
    let mut start = 0;
    let mut expected = vec![];
    for length in lengths.concat() {
        expected.extend(losses(&gpt, &micro_batch(start, 1, length)));
        start += length;
    }
    let difference = |left: &[f64], right: &[f64]| {
        let pairs = left.iter().zip(right);
        pairs.map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
    };
    assert_eq!(found.len(), expected.len());
    assert!(
        difference(&found, &expected) < 1e-12,
        "{found:?}, expected {expected:?}"
    );
    assert!(difference(&whole, &expected) > 0.01, "the documents make a difference");
}
