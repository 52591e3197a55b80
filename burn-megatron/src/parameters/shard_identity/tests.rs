//! Records of shards: which are loaded, and which are refused.

use burn::module::list_param_ids;
use burn::store::ModuleRecord;

use super::*;
use crate::context::ParallelContext;
use crate::parameters::list_parameters;

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
    Param::from_tensor(Tensor::full([2, columns], value, &Device::flex()))
}

fn plain(columns: usize) -> Plain {
    Plain {
        weight: weight(columns, 0.5),
    }
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

/// What loads after a way through bytes.
fn saved(module: impl Module) -> ModuleRecord {
    let bytes = module.into_record().into_bytes().expect("it is recorded");
    ModuleRecord::from_bytes(bytes).expect("it is read")
}

fn load(module: Sharded, record: ModuleRecord) -> Result<Sharded, RecordError> {
    ParallelContext::single(0).load_record(module, record)
}

fn values(weight: &Param<Tensor<2>>) -> Vec<f32> {
    weight.val().into_data().try_to_vec().expect("f32")
}

/// Checks the beginning of a refusal.
#[track_caller]
fn assert_refused(loaded: Result<Sharded, RecordError>, expected: &str) {
    let message = loaded.expect_err("of others").to_string();
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn own_record_loads() {
    for record in [sharded(1, 2, 0.5).into_record(), saved(sharded(1, 2, 0.5))] {
        for record in [record.clone(), record.cast_to_module_dtype()] {
            let loaded = load(sharded(1, 2, 0.0), record.clone()).expect("its own");
            assert_eq!(values(&loaded.weight), [0.5; 4]);
            let loaded = sharded(1, 2, 0.0).load_record(record);
            assert_eq!(values(&loaded.weight), [0.5; 4]);
        }
    }
}

#[test]
fn another_ranks_record_is_refused_by_both_ranks_and_what_is_held() {
    let expected = "tensor rank 0 of 2 cannot load this record into fc: it was saved by tensor rank 1 of 2, and this \
                    rank holds weight [2, 2] from [0, 0] of [2, 4]; load the file that this rank saved in this layout; \
                    a model that is saved in one layout and loaded in another goes through one checkpoint \
                    (burn_megatron::checkpoint";
    assert_refused(load(sharded(0, 2, 0.0), saved(sharded(1, 2, 0.5))), expected);
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
    let expected = "tensor rank 0 of 2 cannot load this record into fc: it was saved by tensor rank 0 of 4";
    assert_refused(load(sharded(0, 2, 0.0), sharded(0, 4, 0.5).into_record()), expected);
    // Those of all sizes are smaller.
    let expected = "the record does not fit the module: it was saved by a module of other sizes or in another layout";
    assert_refused(load(sharded(0, 1, 0.0), sharded(0, 2, 0.5).into_record()), expected);
}

#[test]
fn record_of_other_shards_of_the_same_rank_is_refused() {
    let mut other = sharded(0, 2, 0.5);
    let rows = Placement::shard(&[4, 2], 0, 0, 2);
    other.shard = ShardIdentity::new("fc".to_owned(), (0, 2), (0, 1), vec![("weight".to_owned(), rows)]);
    let expected = "tensor rank 0 of 2 cannot load this record into fc: it was saved by tensor rank 0 of 2 with other \
                    shards, and this rank holds weight [2, 2] from [0, 0] of [2, 4]";
    assert_refused(load(sharded(0, 2, 0.0), saved(other)), expected);
}

#[test]
fn record_that_does_not_say_whose_it_is_is_loaded_whole_only() {
    let whole = load(sharded(0, 1, 0.0), saved(plain(4))).expect("whole into whole");
    assert_eq!(values(&whole.weight), [0.5; 8]);
    let whole = plain(4).load_record(saved(sharded(0, 1, 0.25)));
    assert_eq!(values(&whole.weight), [0.25; 8]);

    let expected = "tensor rank 0 of 2 cannot load this record into fc: the record does not say whose shards it holds";
    assert_refused(load(sharded(0, 2, 0.0), saved(plain(2))), expected);
    let context = ParallelContext::single(0);
    let load_unmarked = |columns| context.load_unmarked_record(sharded(0, 2, 0.0), saved(plain(columns)));
    assert_eq!(values(&load_unmarked(2).expect("asked for").weight), [0.5; 4]);

    let message = load_unmarked(4).expect_err("whole into a half").to_string();
    assert!(message.contains("weight: shape mismatch"), "{message}");
}

#[test]
fn record_without_a_parameter_is_refused() {
    #[derive(Module, Debug)]
    struct Bare {
        shard: ShardIdentity,
    }
    let bare = Bare {
        shard: sharded(0, 2, 0.0).shard,
    };
    let message = load(sharded(0, 2, 0.0), saved(bare))
        .expect_err("no weight")
        .to_string();
    assert!(message.contains(r#"Missing tensors: ["weight"]"#), "{message}");
}

#[test]
fn after_a_refusal_records_are_checked_as_before() {
    load(sharded(0, 2, 0.0), sharded(1, 2, 0.5).into_record()).expect_err("another rank's");
    let panics = std::panic::catch_unwind(|| sharded(0, 2, 0.0).load_record(sharded(1, 2, 0.5).into_record()));
    assert!(panics.is_err());
}

#[test]
fn a_module_keeps_its_identity_in_validation_and_on_another_device() {
    let device = Device::flex().autodiff();
    let valid = sharded(1, 2, 0.5).fork(&device).valid().to_device(&device);
    load(sharded(1, 2, 0.0), valid.train().into_record()).expect("its own");
}

#[test]
fn an_identity_is_no_parameter_to_train() {
    let (plain, sharded) = (plain(2), sharded(1, 2, 0.5));
    assert_eq!(Module::num_params(&sharded), Module::num_params(&plain));
    assert_eq!(sharded.devices(), plain.devices());
    assert_eq!(list_parameters(&sharded).len(), 1);
    assert_eq!(list_param_ids(&sharded)[0], sharded.weight.id);
}

#[test]
fn a_visit_makes_no_tensor() {
    struct Ints(usize);
    impl ModuleVisitor for Ints {
        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
            assert!(!param.is_initialized());
            self.0 += 1;
        }
    }
    let mut ints = Ints(0);
    sharded(0, 2, 0.5).visit(&mut ints);
    assert_eq!(ints.0, 1);
}
