//! Records of shards: which are loaded, which are refused, and in which formats.

use burn::module::{AutodiffModule, Param};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, HalfPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::tensor::Tensor;
use burn_flex::{Flex, FlexDevice};

use super::*;
use crate::context::ParallelContext;

/// A layer with a shard of `[2, 4]`.
#[derive(Module, Debug)]
struct Sharded {
    weight: Param<Tensor<2>>,
    shard: ShardIdentity,
}

/// A layer of burn's kind.
#[derive(Module, Debug)]
struct Plain {
    weight: Param<Tensor<2>>,
}

fn weight(columns: usize, value: f32) -> Param<Tensor<2>> {
    Param::from_tensor(Tensor::full([2, columns], value, &FlexDevice))
}

fn sharded(rank: usize, size: usize, value: f32) -> Sharded {
    of_stage((rank, size), (0, 1), value)
}

fn of_stage((rank, size): (usize, usize), stage: (usize, usize), value: f32) -> Sharded {
    let placement = Placement::shard(&[2, 4], 1, rank, size);
    let shards = vec![("weight".to_owned(), placement)];
    Sharded {
        weight: weight(4 / size, value),
        shard: ShardIdentity::new("fc".to_owned(), (rank, size), stage, shards),
    }
}

type Named = NamedMpkBytesRecorder<FullPrecisionSettings>;

/// What loads after a way through bytes.
fn through<R: Recorder<RecordArgs = (), RecordOutput = Vec<u8>, LoadArgs = Vec<u8>>>(
    record: SavedRecord,
) -> SavedRecord {
    let recorder = R::default();
    let bytes = recorder.record(record, ()).expect("it is recorded");
    recorder.load(bytes, &FlexDevice).expect("it is read")
}

type SavedRecord = <Sharded as Module>::Record;

fn load(module: Sharded, record: SavedRecord) -> Result<Sharded, RecordError> {
    ParallelContext::single(0).load_record::<_>(module, record)
}

fn values(module: &Sharded) -> Vec<f32> {
    module.weight.val().into_data().to_vec().expect("f32")
}

#[test]
fn own_record_loads_through_every_recorder() {
    let record = || sharded(1, 2, 0.5).into_record();
    let records = [
        record(),
        through::<Named>(record()),
        through::<NamedMpkBytesRecorder<HalfPrecisionSettings>>(record()),
        through::<BinBytesRecorder<FullPrecisionSettings>>(record()),
        through::<BinBytesRecorder<HalfPrecisionSettings>>(record()),
    ];
    for record in records {
        let loaded = load(sharded(1, 2, 0.0), record).expect("its own");
        assert_eq!(values(&loaded), [0.5; 4]);
    }
}

#[test]
fn another_ranks_record_is_refused_by_both_ranks_and_what_they_hold() {
    let record = through::<Named>(sharded(1, 2, 0.5).into_record());
    let error = load(sharded(0, 2, 0.0), record).expect_err("another rank's");
    let message = error.to_string();
    let expected = "tensor rank 0 of 2 cannot load this record into fc: it was saved by tensor rank 1 of 2 (weight [2, \
                    2] from [0, 2] of [2, 4]), and this rank holds weight [2, 2] from [0, 0] of [2, 4]; load the file \
                    that this rank saved in this layout; a model that is saved in one layout and loaded in another \
                    goes through one checkpoint (burn_megatron::checkpoint";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
#[should_panic(expected = "tensor rank 0 of 2 cannot load this record into fc: it was saved by tensor rank 1 of 2")]
fn burns_own_way_to_load_another_ranks_record_panics_with_the_same_text() {
    sharded(0, 2, 0.0).load_record(sharded(1, 2, 0.5).into_record());
}

#[test]
fn another_stages_record_is_refused_with_equal_shards_and_without() {
    for tensor in [(0, 1), (1, 2)] {
        let record = || of_stage(tensor, (0, 2), 0.5).into_record();
        let error = load(of_stage(tensor, (1, 2), 0.0), record()).expect_err("of the first stage");
        let expected = "pipeline stage 1 of 2 cannot load this record into fc: it was saved by tensor rank";
        assert!(error.to_string().contains(expected), "{error}");
        load(of_stage(tensor, (0, 2), 0.0), record()).expect("its own");
    }
}

#[test]
fn record_of_another_tensor_size_is_refused() {
    let error = load(sharded(0, 2, 0.0), sharded(0, 4, 0.5).into_record()).expect_err("of four");
    let expected = "tensor rank 0 of 2 cannot load this record into fc: it was saved by tensor rank 0 of 4";
    assert!(error.to_string().starts_with(expected), "{error}");
    let error = load(sharded(0, 1, 0.0), sharded(0, 2, 0.5).into_record()).expect_err("a half");
    let expected = "tensor rank 0 of 1 cannot load this record into fc: it was saved by tensor rank 0 of 2";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn record_that_does_not_say_whose_it_is_is_loaded_whole_only() {
    let plain = |columns| {
        let plain = Plain {
            weight: weight(columns, 0.5),
        };
        let bytes = Named::default()
            .record(plain.into_record(), ())
            .expect("it is recorded");
        Named::default()
            .load::<SavedRecord>(bytes, &FlexDevice)
            .expect("a field that is absent is none")
    };
    let whole = load(sharded(0, 1, 0.0), plain(4)).expect("whole into whole");
    assert_eq!(values(&whole), [0.5; 8]);

    let error = load(sharded(0, 2, 0.0), plain(2)).expect_err("it may be another's");
    assert!(matches!(error, RecordError::Unmarked { .. }), "{error}");
    let context = ParallelContext::single(0);
    let own = context.load_unmarked_record::<_>(sharded(0, 2, 0.0), plain(2));
    assert_eq!(values(&own.expect("asked for")), [0.5; 4]);

    let error = load(sharded(0, 2, 0.0), plain(4)).expect_err("whole into a half");
    let expected = "the record's parameter weight has the shape [2, 4], and the module's has [2, 2]";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn after_a_refusal_records_are_checked_as_before() {
    load(sharded(0, 2, 0.0), sharded(1, 2, 0.5).into_record()).expect_err("another rank's");
    let panics = std::panic::catch_unwind(|| sharded(0, 2, 0.0).load_record(sharded(1, 2, 0.5).into_record()));
    assert!(panics.is_err());
}

#[test]
fn a_module_without_autodiff_keeps_its_identity() {
    let valid = sharded(1, 2, 0.5).valid();
    let back = Sharded::from_inner(valid);
    load(sharded(1, 2, 0.0), back.into_record()).expect("its own");
}
