//! Errors of one rank: all ranks end at once, and say whose it is.

use std::time::{Duration, Instant};

use super::*;

/// A program that only one rank cannot run, where no collective tells the others.
#[test]
fn an_error_of_one_rank_is_an_error_of_all() {
    for fails_in_layout in [false, true] {
        let errors = on_mesh(TENSOR_2, |world, mesh| {
            let steps = program(None);
            let program = |run: &mut Run| {
                let model = steps(run)?;
                if world.rank() == 1 && run.layout().is_some() == fails_in_layout {
                    Err(Failure::from("no file"))
                } else {
                    Ok(model)
                }
            };
            compare(&CompareConfig::new(), &layouts(mesh), &new_device().autodiff(), program).unwrap_err()
        });
        let place = if fails_in_layout { "in tp2" } else { "on one rank" };
        let expected = format!("rank 1 failed: the program failed {place}: no file");
        assert_eq!(errors[0].to_string(), expected);
        assert_eq!(errors[1].to_string(), format!("the program failed {place}: no file"));
    }
}

/// In the middle of a run the others wait in collectives of the program, and those that share no group with the rank
/// that failed wait for ranks that wait for it.
#[test]
fn an_error_of_one_rank_ends_the_collectives_that_others_wait_in() {
    for fails_at in [1, 2] {
        let errors = on_mesh(DATA_2_TENSOR_2, |world, mesh| {
            let is_failing = |run: &Run| world.rank() == 1 && run.layout().is_some();
            let program = |run: &mut Run| {
                let mut model = run.parallelize(Net::new(run.device()))?;
                let mut optimizer = AdamWConfig::new().init();
                for number in 1..=3 {
                    let (tokens, labels) = batch(number, run);
                    let loss = model.loss(tokens, labels, None);
                    if is_failing(run) && number == fails_at {
                        return Err(Failure::from("no file"));
                    }
                    let (loss, gradients) = backward(loss, &model)?;
                    run.judge(&loss, &gradients, &model)?;
                    model = optimizer.step(1e-2, model, gradients);
                }
                Ok(model)
            };
            let layouts = [Layout::new("tp2dp2", mesh, plan())];
            let start = Instant::now();
            let error = compare(&CompareConfig::new(), &layouts, &new_device().autodiff(), program).unwrap_err();
            let seconds = start.elapsed();
            assert!(seconds < Duration::from_secs(10), "{seconds:?}: {error}");
            error.to_string()
        });
        let own = "the program failed in tp2dp2: no file";
        for (rank, error) in errors.iter().enumerate() {
            match rank {
                1 => assert_eq!(error, own),
                _ => assert_eq!(error, &format!("rank 1 failed: {own}"), "rank {rank}"),
            }
        }
    }
}

/// What is reported fits into what a group keeps, and is cut between characters.
#[test]
fn the_beginning_of_a_long_error_is_reported() {
    let errors = on_mesh(TENSOR_2, |world, mesh| {
        let steps = program(None);
        let program = |run: &mut Run| {
            if world.rank() == 1 && run.layout().is_some() {
                Err(Failure::from("é".repeat(1000)))
            } else {
                steps(run)
            }
        };
        compare(
            &CompareConfig::new(),
            &layouts(mesh)[..1],
            &new_device().autodiff(),
            program,
        )
        .unwrap_err()
        .to_string()
    });
    assert!(
        errors[0].starts_with("rank 1 failed: the program failed in tp2: éé") && errors[0].ends_with('é'),
        "{}",
        errors[0]
    );
    assert!(errors[0].len() < 520 && errors[1].len() > 2000);
}
