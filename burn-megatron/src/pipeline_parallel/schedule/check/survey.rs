//! `Survey`: where everything is in the lists. Made by [`Schedule::check`], it refuses actions that name what does not
//! exist and actions that are done twice.

use std::collections::{BTreeMap, HashMap, HashSet, hash_map::Entry};

use crate::pipeline_parallel::schedule::{
    Action, Direction, Message, Place, Schedule, ScheduleError,
    geometry::{Step, Tag},
};

/// A channel: sending stage, receiving stage, direction.
pub(super) type Channel = (usize, usize, Direction);

/// One end of a transfer: the stage's index in the list, and the message as that stage writes it.
type End = (usize, Message);

/// Where the tasks, the sends and the receives of a schedule are.
pub(super) struct Survey<'a> {
    schedule: &'a Schedule,
    steps: HashMap<Step, usize>,
    sends: HashMap<Tag, usize>,
    recvs: HashMap<Tag, usize>,
    channels: BTreeMap<Channel, [Vec<End>; 2]>,
}

/// What a stage does with a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Sends,
    Receives,
}

/// The channel of a message that `stage` sends.
pub(super) fn send_channel(stage: usize, message: &Message) -> Channel {
    (stage, message.peer, message.direction)
}

/// The channel of a message that `stage` receives.
pub(super) fn recv_channel(stage: usize, message: &Message) -> Channel {
    (message.peer, stage, message.direction)
}

impl<'a> Survey<'a> {
    /// Goes through all lists.
    ///
    /// # Errors
    /// An action with a number out of range, with the wrong stage at either end, or done before.
    pub fn of(schedule: &'a Schedule) -> Result<Self, ScheduleError> {
        let mut survey = Self {
            schedule,
            steps: HashMap::new(),
            sends: HashMap::new(),
            recvs: HashMap::new(),
            channels: BTreeMap::new(),
        };
        for (stage, list) in schedule.stages.iter().enumerate() {
            for (index, action) in list.iter().enumerate() {
                survey.add(stage, index, action)?;
            }
        }
        Ok(survey)
    }

    /// An action's place, for errors.
    pub fn place(&self, stage: usize, index: usize) -> Place {
        Place {
            stage,
            index,
            action: self.schedule.stages[stage][index].to_string(),
        }
    }

    /// The index of a task in its stage's list.
    pub fn index_of(&self, step: Step) -> Option<usize> {
        self.steps.get(&step).copied()
    }

    /// The index of a message's receive in its receiver's list.
    pub fn receive_of(&self, message: &Message) -> Option<usize> {
        self.recvs.get(&message.tag()).copied()
    }

    fn add(&mut self, stage: usize, index: usize, action: &Action) -> Result<(), ScheduleError> {
        let schedule = self.schedule;
        if let Some((pass, task)) = action.compute() {
            self.check_range(
                stage,
                index,
                "micro-batch",
                task.micro_batch,
                schedule.num_micro_batches,
            )?;
            self.check_range(stage, index, "chunk", task.chunk, schedule.num_chunks)?;
            if matches!(action, Action::Backward(_)) && schedule.is_forward_only {
                let place = self.place(stage, index);
                return Err(ScheduleError::UnexpectedBackward { place });
            }
            let first = *self.steps.entry(Step { stage, pass, task }).or_insert(index);
            if first != index {
                return self.twice(stage, index, first, format!("the {pass} of {task}"));
            }
        }
        for message in action.sends() {
            self.add_end(stage, index, message, Role::Sends)?;
        }
        for message in action.recvs() {
            self.add_end(stage, index, message, Role::Receives)?;
        }
        if let Action::Exchange { sends, recvs } = action {
            let mut channels = HashSet::new();
            let ends = sends.iter().map(|message| send_channel(stage, message));
            let mut all = ends.chain(recvs.iter().map(|message| recv_channel(stage, message)));
            let problem = match all.find(|&channel| !channels.insert(channel)) {
                Some((from, to, direction)) => Some(format!(
                    "two from stage {from} to stage {to} in the channel of {direction}s"
                )),
                None if channels.is_empty() => Some("none".to_owned()),
                None => None,
            };
            if let Some(got) = problem {
                let place = self.place(stage, index);
                return Err(ScheduleError::ExchangeChannels { place, got });
            }
        }
        Ok(())
    }

    fn add_end(&mut self, stage: usize, index: usize, message: &Message, role: Role) -> Result<(), ScheduleError> {
        let schedule = self.schedule;
        let geometry = schedule.geometry();
        self.check_range(
            stage,
            index,
            "micro-batch",
            message.micro_batch,
            schedule.num_micro_batches,
        )?;
        let virtual_stages = geometry.num_virtual_stages();
        self.check_range(stage, index, "virtual stage", message.from, virtual_stages)?;
        let none = |reason| {
            let place = self.place(stage, index);
            Err(ScheduleError::NoSuchMessage { place, reason })
        };
        if message.direction == Direction::Backward && schedule.is_forward_only {
            return none("the schedule is forward only");
        }
        let Some(consumer) = geometry.consumer(message) else {
            return none("the pipeline ends there");
        };
        let sender = geometry.stage_of(message.from);
        let receiver = geometry.stage_of(consumer);
        if sender == receiver {
            return none("both ends are the same stage");
        }
        let (here, there, verb) = match role {
            Role::Sends => (sender, receiver, "sends"),
            Role::Receives => (receiver, sender, "receives"),
        };
        if here != stage {
            return Err(ScheduleError::WrongStage {
                place: self.place(stage, index),
                expected: here,
                role: verb,
            });
        }
        if there != message.peer {
            return Err(ScheduleError::WrongPeer {
                place: self.place(stage, index),
                expected: there,
                got: message.peer,
            });
        }
        let (ends, slot) = match role {
            Role::Sends => (&mut self.sends, 0),
            Role::Receives => (&mut self.recvs, 1),
        };
        match ends.entry(message.tag()) {
            Entry::Occupied(first) => {
                let first = *first.get();
                self.twice(stage, index, first, format!("stage {stage} {verb} the {message}"))
            }
            Entry::Vacant(entry) => {
                entry.insert(index);
                let channel = (sender, receiver, message.direction);
                self.channels.entry(channel).or_default()[slot].push((index, *message));
                Ok(())
            }
        }
    }

    fn check_range(
        &self,
        stage: usize,
        index: usize,
        what: &'static str,
        got: usize,
        limit: usize,
    ) -> Result<(), ScheduleError> {
        if got < limit {
            return Ok(());
        }
        Err(ScheduleError::OutOfRange {
            place: self.place(stage, index),
            what,
            limit,
            got,
        })
    }

    fn twice(&self, stage: usize, index: usize, first: usize, what: String) -> Result<(), ScheduleError> {
        Err(ScheduleError::Twice {
            place: self.place(stage, index),
            what,
            first: self.place(stage, first),
        })
    }

    /// Checks that every send has its receive, and every receive its send.
    ///
    /// # Errors
    /// The first end that has no other.
    pub fn check_pairs(&self) -> Result<(), ScheduleError> {
        for (&(sender, receiver, _), [sends, recvs]) in &self.channels {
            if let Some((index, message)) = sends
                .iter()
                .find(|(_, message)| !self.recvs.contains_key(&message.tag()))
            {
                return Err(ScheduleError::NeverReceived {
                    place: self.place(sender, *index),
                    peer: receiver,
                    message: message.to_string(),
                });
            }
            if let Some((index, message)) = recvs
                .iter()
                .find(|(_, message)| !self.sends.contains_key(&message.tag()))
            {
                return Err(ScheduleError::NeverSent {
                    place: self.place(receiver, *index),
                    peer: sender,
                    message: message.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Checks that every channel's messages are received as they are sent. Every end must have its other.
    ///
    /// # Errors
    /// The first receive that is another message's turn.
    pub fn check_channel_orders(&self) -> Result<(), ScheduleError> {
        for (&(sender, receiver, _), [sends, recvs]) in &self.channels {
            for (number, ((send, sent), (recv, received))) in sends.iter().zip(recvs).enumerate() {
                if sent.tag() != received.tag() {
                    return Err(ScheduleError::ChannelOrder {
                        place: self.place(receiver, *recv),
                        expected: sent.to_string(),
                        send: Box::new(self.place(sender, *send)),
                        number,
                        got: received.to_string(),
                    });
                }
            }
        }
        Ok(())
    }
}
