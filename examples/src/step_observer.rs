//! [`StepObserver`]: Megatron's timers and NVTX ranges, of what a trainer's timeline shows.

use std::time::{Duration, Instant};

use burn_megatron::pipeline_parallel::schedule::Direction;
use burn_megatron::pipeline_parallel::{Activity, TimelineLabel, TimelineObserver};
use burn_megatron_monitoring::nvtx::Nvtx;
use burn_megatron_monitoring::timers::{Timer, Timers};
use parking_lot::Mutex;

use crate::arguments::MonitoringArguments;

/// What measures the parts of a rank's steps.
#[derive(Debug)]
pub struct StepObserver {
    timers: Timers,
    nvtx: Nvtx,
    /// When the passes of the step began, until they end.
    passes: Mutex<Option<Instant>>,
}

impl StepObserver {
    /// Returns what the flags ask a rank for.
    pub fn new(arguments: &MonitoringArguments, rank: usize) -> Self {
        let is_profiled = arguments.profile && arguments.profile_ranks().contains(&rank);
        Self {
            timers: Timers::new(arguments.timing_log_level(), arguments.timing_option()),
            nvtx: if is_profiled { Nvtx::load() } else { Nvtx::none() },
            passes: Mutex::new(None),
        }
    }

    pub fn timers(&self) -> &Timers {
        &self.timers
    }

    pub fn nvtx(&self) -> &Nvtx {
        &self.nvtx
    }

    /// Says that the passes of a step begin; they end where gradients are reduced.
    pub fn passes_begin(&self) {
        self.nvtx.push(Timer::ForwardBackward.name());
        *self.passes.lock() = Some(Instant::now());
    }

    fn passes_end(&self) {
        let began = self.passes.lock().take();
        if let Some(began) = began {
            self.nvtx.pop();
            self.timers.add(Timer::ForwardBackward, began.elapsed());
        }
    }
}

/// The timer of an activity, if it has one. Receives are asked for long before: waiting for them is what counts.
fn timer_of(activity: Activity, label: TimelineLabel) -> Option<Timer> {
    match (activity, label.direction) {
        (Activity::Forward, _) => Some(Timer::ForwardCompute),
        (Activity::Backward, _) => Some(Timer::BackwardCompute),
        (Activity::Reduction, _) => Some(Timer::AllGradsSync),
        (Activity::Optimizer, _) => Some(Timer::Optimizer),
        (Activity::Wait, Some(Direction::Forward)) => Some(Timer::ForwardRecv),
        (Activity::Wait, Some(Direction::Backward)) => Some(Timer::BackwardRecv),
        (Activity::Send, Some(Direction::Forward)) => Some(Timer::ForwardSend),
        (Activity::Send, Some(Direction::Backward)) => Some(Timer::BackwardSend),
        (Activity::Wait | Activity::Send | Activity::Receive, _) => None,
    }
}

/// Whether an activity is shown from its beginning.
fn has_range(activity: Activity) -> bool {
    !matches!(activity, Activity::Wait | Activity::Send | Activity::Receive)
}

impl TimelineObserver for StepObserver {
    fn begins(&self, activity: Activity, label: TimelineLabel) {
        if activity == Activity::Reduction {
            self.passes_end();
        }
        if let Some(timer) = timer_of(activity, label).filter(|_| has_range(activity)) {
            self.nvtx.push(timer.name());
        }
    }

    fn ends(&self, activity: Activity, label: TimelineLabel, time: Duration) {
        if has_range(activity) {
            self.nvtx.pop();
        }
        if let Some(timer) = timer_of(activity, label) {
            self.timers.add(timer, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use burn_megatron::pipeline_parallel::Timeline;

    use super::*;

    #[test]
    fn the_parts_of_a_step_reach_their_timers() {
        let arguments = MonitoringArguments {
            timing_log_level: Some(2),
            ..MonitoringArguments::default()
        };
        let observer = Arc::new(StepObserver::new(&arguments, 0));
        let timeline = Timeline::default().with_observer(observer.clone());
        let label = TimelineLabel {
            direction: Some(Direction::Backward),
            ..TimelineLabel::default()
        };
        let pause = || std::thread::sleep(Duration::from_millis(2));
        observer.passes_begin();
        timeline.measure(Activity::Forward, TimelineLabel::default(), pause);
        timeline.measure(Activity::Backward, TimelineLabel::default(), pause);
        for activity in [Activity::Wait, Activity::Send, Activity::Receive] {
            let now = Instant::now();
            timeline.record(activity, label, now, now + Duration::from_secs(3));
        }
        timeline.measure(Activity::Reduction, TimelineLabel::default(), pause);
        let seconds = observer.timers().take();
        let of = |timer: Timer| seconds[timer as usize];
        assert_eq!((of(Timer::BackwardRecv), of(Timer::BackwardSend)), (3.0, 3.0));
        for timer in [
            Timer::ForwardRecv,
            Timer::ForwardSend,
            Timer::Optimizer,
            Timer::BatchGenerator,
        ] {
            assert_eq!(of(timer), 0.0, "{timer:?}");
        }
        let passes = of(Timer::ForwardCompute) + of(Timer::BackwardCompute);
        assert!(passes >= 0.004 && of(Timer::ForwardBackward) >= passes, "{seconds:?}");
        assert!(of(Timer::AllGradsSync) >= 0.002);
    }
}
