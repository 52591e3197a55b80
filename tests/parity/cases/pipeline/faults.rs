//! A stage that dies or hangs in the middle of a step: the others end, and say which message they waited for.

use anyhow::bail;
use burn_megatron::pipeline_parallel::schedule::ScheduleKind;
use libtest_mimic::Trial;

use super::nets::{Samples, Variant, mean, pipeline};
use super::{PP2, Run};
use crate::parity::cases::faults::first_cause;
use tests::harness::{Case, Job};

/// The check that these cases name.
pub const NAME: &str = "fault";

pub fn trials() -> Vec<Trial> {
    let job = |victim: usize, signal: i32, timeout_secs: u64| {
        let case = PP2
            .describe(Case::new("parity", "pipeline").with("check", NAME), "f32")
            .with("chunks", PP2.chunks)
            .with("victim", victim)
            .with("signal", signal)
            .with("timeout_secs", timeout_secs);
        Job::new(case, PP2.world_size())
    };
    const SLEEP: i32 = 0;
    let killed = 128 + libc::SIGKILL;
    let ended = 128 + libc::SIGTERM;
    vec![
        // Silence is reported at three quarters of the timeout.
        first_cause(
            job(0, libc::SIGSTOP, 8),
            "stopped_first_stage_is_named_as_silent",
            killed,
            &[
                "[launcher] rank 0 (pid ",
                ") failed first: killed by signal 9 (SIGKILL) by the launcher (silent: no heartbeat for ",
                "group pipeline [0, 1]: recv of 225 f32 from rank 0 (call 2) [activation of micro-batch 2 from virtual \
                 stage 0] stopped because rank 0 on host",
                "then rank 1: exit code 75 (because another rank failed)",
            ],
        ),
        // It posted the receive of a gradient long before: no rank is to blame that the gradient has not arrived.
        first_cause(
            job(0, SLEEP, 2),
            "hung_first_stage_is_named_with_the_activation_that_it_owes",
            ended,
            &[
                "[launcher] rank 0 (pid ",
                ") failed first: killed by signal 15 (SIGTERM) by the launcher (late: its heartbeats arrive, ",
                "did not come to recv of 225 f32 from rank 0 (call 2) [activation of micro-batch 2 from virtual stage \
                 0] of group pipeline [0, 1]; rank 1 ",
                "then rank 1: exit code 75 (because another rank failed)",
            ],
        ),
        first_cause(
            job(1, SLEEP, 2),
            "hung_last_stage_is_named_with_the_gradient_that_it_owes",
            ended,
            &[
                "[launcher] rank 1 (pid ",
                ") failed first: killed by signal 15 (SIGTERM) by the launcher (late: its heartbeats arrive, ",
                "did not come to recv of 225 f32 from rank 1 (call 2) [gradient of micro-batch 2 from virtual stage 1] \
                 of group pipeline-backward [0, 1]; ",
                "then rank 0: exit code 75 (because another rank failed)",
            ],
        ),
        first_cause(
            job(0, libc::SIGKILL, 2),
            "killed_first_stage_is_named_with_the_activation_that_it_owes",
            killed,
            &[
                "[launcher] rank 0 (pid ",
                ") failed first: killed by signal 9 (SIGKILL); then rank 1: exit code 75",
                "group pipeline [0, 1]: recv of 225 f32 from rank 0 (call 2) [activation of micro-batch 2 from virtual \
                 stage 0] stopped because rank 0 on host",
            ],
        ),
        first_cause(
            job(1, libc::SIGKILL, 2),
            "killed_last_stage_is_named_with_the_gradient_that_it_owes",
            killed,
            &[
                "[launcher] rank 1 (pid ",
                ") failed first: killed by signal 9 (SIGKILL); then rank 0: exit code 75",
                "group pipeline-backward [0, 1]: recv of 225 f32 from rank 1 (call 2) [gradient of micro-batch 2 from \
                 virtual stage 1] stopped because rank 1 on host",
            ],
        ),
    ]
}

pub(super) fn run(run: &Run) -> anyhow::Result<()> {
    let (scene, case) = (&run.scene, &run.case);
    let variant = Variant::default();
    let fault = if scene.context.coordinates().pipeline == case.setting::<usize>("victim")? {
        Some((2, case.setting("signal")?))
    } else {
        None
    };
    let (mut wrapped, executor) = pipeline(scene, 1, ScheduleKind::OneForwardOneBackward, 4, variant)?;
    let mut samples = Samples::of_step(scene, variant, 0, 0);
    if let Some((micro_batch, signal)) = fault {
        samples[micro_batch].signal = Some(signal);
    }
    executor.train(&mut wrapped, &samples, |_, losses| mean(losses))?;
    // After its own fault the first stage has nothing to wait for, and the last one's gradients have arrived.
    bail!("the step ended in spite of the fault")
}
