//! Programs in bf16: as near to one rank as that is to f32.

use super::*;

/// The program of the other tests, in the type that `dtype` says.
fn program_in(dtype: impl Fn(&Run) -> FloatDType) -> impl Fn(&mut Run) -> Result<Net, Failure> {
    move |run| {
        let mut model = run.parallelize(Net::new(run.device()).map(&mut In(dtype(run))))?;
        let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).init();
        for number in 1..=3 {
            let (tokens, labels) = batch(number, run);
            let (loss, gradients) = backward(model.loss(tokens, labels, None), &model)?;
            run.judge(&loss, &gradients, &model)?;
            model = mark("optimizer", || optimizer.step(1e-2, model, gradients));
        }
        Ok(model)
    }
}

/// Four times the distance of one rank in bf16 from one rank in f32.
fn tolerance() -> Tolerance {
    let one = [Layout::new("bf16", &Mesh::new([]).unwrap(), Plan::new())];
    let program = program_in(|run| run.layout().map_or(FloatDType::F32, |_| FloatDType::BF16));
    let config = CompareConfig::new().with_trace(Trace::Never);
    let own = compare(&config, &one, &new_device().autodiff(), program)
        .unwrap()
        .remove(0)
        .judgement;
    println!("one rank in bf16 against f32: {own}");
    assert!(own.worst_loss > 1e-5 && own.worst_parameter > 1e-5, "{own}");
    own.tolerance(4.0)
}

#[test]
fn a_layout_in_bf16_is_as_near_to_one_rank_as_that_is_to_f32() {
    for axes in [DATA_2, TENSOR_2, DATA_2_TENSOR_2] {
        let all = on_mesh(axes, |_, mesh| {
            let layouts = match axes.len() {
                1 => layouts(mesh),
                _ => vec![Layout::new("tp2fsdp2", mesh, plan().fully_shard(AxisRole::Data))],
            };
            let config = CompareConfig::new()
                .with_tolerance(tolerance())
                .with_trace(Trace::Always);
            compare(
                &config,
                &layouts,
                &new_device().autodiff(),
                program_in(|_| FloatDType::BF16),
            )
            .unwrap()
        });
        for comparison in &all[0] {
            println!("{comparison}");
            assert!(comparison.is_equal() && comparison.first.is_none(), "{comparison}");
            // It is no copy of the one-rank run: it rounds elsewhere.
            assert!(comparison.judgement.worst_gradient > 0.0, "{comparison}");
        }
    }
}

#[test]
fn a_fault_in_bf16_is_named() {
    let mut all = on_mesh(TENSOR_2, |_, mesh| {
        let tolerance = tolerance();
        plant(Some(Fault::AddedPerRank("float_add")));
        let config = CompareConfig::new().with_tolerance(tolerance);
        let program = program_in(|_| FloatDType::BF16);
        compare(&config, &layouts(mesh)[..1], &new_device().autodiff(), program)
            .unwrap()
            .remove(0)
    });
    let comparison = all.remove(0);
    println!("{comparison}");
    assert!(!comparison.is_equal(), "{comparison}");
    let first = comparison.first.unwrap();
    assert_eq!(first.operation, "float_add", "{first}");
    assert!(
        first.near.contains(&"encoder.layers.0.mha.output.bias".to_owned()),
        "{first}"
    );
}

#[test]
fn a_loss_in_bf16_without_a_tolerance_is_refused_by_its_type() {
    let error = compare(
        &CompareConfig::new(),
        &[],
        &new_device().autodiff(),
        program_in(|_| FloatDType::BF16),
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.starts_with("there is no parity tolerance for a loss of BF16: how far its rounding takes a run depends"),
        "{error}"
    );
    assert!(error.contains("CompareConfig::with_tolerance four times"), "{error}");
}
