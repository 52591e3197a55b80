//! Carries the lists of a schedule out without computing anything, to find stages that wait for each other.

use std::collections::HashMap;

use super::survey::{Channel, recv_channel, send_channel};
use crate::pipeline_parallel::schedule::{Message, Schedule, ScheduleError};

/// Carries the schedule out and returns, per stage, the most messages that its channels held.
///
/// It works in rounds: in each, every stage that can finish its action moves to its next one. Which stage moves first
/// makes no difference to whether all finish: a transfer that is possible stays possible.
///
/// # Errors
/// [`ScheduleError::Deadlock`] when no stage can continue and not all have finished.
pub(super) fn run(schedule: &Schedule, capacity: usize) -> Result<Vec<usize>, ScheduleError> {
    let num_stages = schedule.num_stages();
    let mut run = Run {
        schedule,
        capacity,
        positions: vec![0; num_stages],
        channels: HashMap::new(),
        ends: vec![Vec::new(); num_stages],
    };
    let mut peaks = vec![0; num_stages];
    for stage in 0..num_stages {
        run.arrive(stage);
    }
    loop {
        let ready: Vec<usize> = (0..num_stages).filter(|&stage| run.can_finish(stage)).collect();
        if ready.is_empty() {
            break;
        }
        for stage in ready {
            run.positions[stage] += 1;
            run.arrive(stage);
        }
        for (stage, held) in run.held().into_iter().enumerate() {
            peaks[stage] = peaks[stage].max(held);
        }
    }
    let blocked: Vec<String> = (0..num_stages).filter_map(|stage| run.blocked(stage)).collect();
    if blocked.is_empty() {
        return Ok(peaks);
    }
    Err(ScheduleError::Deadlock {
        capacity,
        blocked: blocked.join("; "),
    })
}

struct Run<'a> {
    schedule: &'a Schedule,
    capacity: usize,
    /// The action that each stage is at.
    positions: Vec<usize>,
    channels: HashMap<Channel, Progress>,
    /// The transfers of the action that each stage is at.
    ends: Vec<Vec<End>>,
}

/// How many sends and receives of a channel have been come to.
#[derive(Clone, Copy, Default)]
struct Progress {
    sends: usize,
    recvs: usize,
}

#[derive(Clone, Copy)]
struct End {
    channel: Channel,
    is_send: bool,
    /// How many sends, or receives, of the channel come before it.
    number: usize,
    message: Message,
}

impl Run<'_> {
    /// Takes note that a stage has come to the action it is at.
    fn arrive(&mut self, stage: usize) {
        self.ends[stage].clear();
        let Some(action) = self.schedule.stages[stage].get(self.positions[stage]) else {
            return;
        };
        let sends = action.sends().iter().map(|message| (true, message));
        for (is_send, message) in sends.chain(action.recvs().iter().map(|message| (false, message))) {
            let channel = if is_send {
                send_channel(stage, message)
            } else {
                recv_channel(stage, message)
            };
            let progress = self.channels.entry(channel).or_default();
            let count = if is_send {
                &mut progress.sends
            } else {
                &mut progress.recvs
            };
            self.ends[stage].push(End {
                channel,
                is_send,
                number: *count,
                message: *message,
            });
            *count += 1;
        }
    }

    fn is_done(&self, end: &End) -> bool {
        let Progress { sends, recvs } = self.channels.get(&end.channel).copied().unwrap_or_default();
        if end.is_send {
            end.number < recvs.saturating_add(self.capacity)
        } else {
            end.number < sends
        }
    }

    fn can_finish(&self, stage: usize) -> bool {
        self.positions[stage] < self.schedule.stages[stage].len()
            && self.ends[stage].iter().all(|end| self.is_done(end))
    }

    /// The messages in the channels to each stage.
    fn held(&self) -> Vec<usize> {
        let mut held = vec![0; self.positions.len()];
        for (&(_, receiver, _), progress) in &self.channels {
            let most = progress.recvs.saturating_add(self.capacity);
            held[receiver] += progress.sends.min(most).saturating_sub(progress.recvs);
        }
        held
    }

    /// What a stage that has not finished waits for.
    fn blocked(&self, stage: usize) -> Option<String> {
        let index = self.positions[stage];
        let action = self.schedule.stages[stage].get(index)?;
        let waits: Vec<String> = self.ends[stage]
            .iter()
            .filter(|end| !self.is_done(end))
            .map(|End { message, is_send, .. }| {
                let verb = if *is_send { "receive" } else { "send" };
                format!("stage {} to {verb} the {message}", message.peer)
            })
            .collect();
        Some(format!(
            "stage {stage}, action {index} ({action}) waits for {}",
            waits.join(" and ")
        ))
    }
}
