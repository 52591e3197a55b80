//! Traffic into a stage and out of it while its list is carried out.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use burn::tensor::{DType, Device, Shape, Tensor};

use super::boundary::{Boundary, Incoming};
use super::schedule::{Action, Direction, Message};
use super::timeline::{Activity, Timeline, TimelineLabel};
use crate::collectives::{CollectiveError, Pending};

/// Time at which receives are posted. Each holds memory for its tensor, and over NCCL a part of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Posting {
    /// In their place in the list, where each transfer is waited for before anything else is done: nothing is in flight
    /// while a task runs.
    InPlace,
    /// Those between a task and the next one before the first of the two.
    OneTaskAhead,
}

/// Between which stages tensors pass, and how.
pub(super) struct Ends<'a> {
    pub(super) boundary: &'a Boundary,
    pub(super) timeline: &'a Timeline,
    pub(super) dtype: DType,
    pub(super) device: Device,
    pub(super) posting: Posting,
}

/// Identity of a tensor between two virtual stages: the direction, the micro-batch, and the virtual stage that
/// made it.
pub(super) type Tag = (Direction, usize, usize);

/// The tensors that wait to be consumed or sent, and the transfers under way.
pub(super) struct Traffic<'a, const D: usize> {
    ends: Ends<'a>,
    /// Messages that will be received and have not been posted, in the order of the list, and how many tasks come
    /// before each.
    unposted: VecDeque<(usize, Message)>,
    /// Number of tasks that the list has come to.
    num_tasks: usize,
    posted: VecDeque<Posted>,
    /// Messages that the list has received, and nothing has asked for yet: each is waited for when it is needed, not
    /// before.
    due: HashMap<Tag, Posted>,
    /// Tensors that were made here and have neither been consumed nor sent.
    tensors: HashMap<Tag, Tensor<D>>,
    sending: Vec<Sent>,
}

struct Posted {
    message: Message,
    incoming: Incoming,
    at: Instant,
}

/// A message on its way out.
struct Sent {
    pending: Pending<()>,
    label: TimelineLabel,
    at: Instant,
}

impl Sent {
    /// Waits until it has been handed over.
    fn end(self, timeline: &Timeline) -> Result<(), CollectiveError> {
        let finished = self.pending.finished_at();
        self.pending.wait()?;
        timeline.record(
            Activity::Send,
            self.label,
            self.at,
            finished.unwrap_or_else(Instant::now),
        );
        Ok(())
    }
}

impl<'a, const D: usize> Traffic<'a, D> {
    /// Returns the traffic of a list of actions, before the first.
    pub(super) fn new(actions: &[Action], ends: Ends<'a>) -> Self {
        let mut num_tasks = 0;
        let unposted = actions.iter().flat_map(|action| {
            num_tasks += usize::from(action.compute().is_some());
            action.recvs().iter().map(move |message| (num_tasks, *message))
        });
        Self {
            unposted: unposted.collect(),
            ends,
            num_tasks: 0,
            posted: VecDeque::new(),
            due: HashMap::new(),
            tensors: HashMap::new(),
            sending: Vec::new(),
        }
    }

    /// Takes note that the list has come to a task, and posts the receives between it and the next one if they may be
    /// posted ahead, up to the first of which `shape` does not know how large it is.
    #[track_caller]
    pub(super) fn post_ahead(&mut self, shape: impl Fn(&Message) -> Option<Shape>) {
        self.num_tasks += 1;
        if self.ends.posting == Posting::OneTaskAhead {
            while let Some(&(num_tasks, message)) = self.unposted.front()
                && num_tasks == self.num_tasks
                && let Some(shape) = shape(&message)
            {
                self.post(shape);
            }
        }
    }

    /// Starts what the list sends and receives at once.
    #[track_caller]
    pub(super) fn exchange(
        &mut self,
        transfer: &Action,
        shape: impl Fn(&Message) -> Option<Shape>,
    ) -> Result<(), CollectiveError> {
        self.send(transfer.sends())?;
        let recvs = transfer.recvs();
        // Of what the list receives next the beginning may have been posted.
        for message in recvs.iter().skip(self.posted.len()) {
            self.post(shape(message).expect("a gradient comes for what was made"));
        }
        if self.ends.posting == Posting::InPlace {
            self.wait_for_sends(0)?;
        }
        for message in recvs {
            let posted = self.posted.pop_front().expect("posted above");
            assert_eq!(posted.message, *message, "receives are posted in the order of the list");
            match self.ends.posting {
                Posting::InPlace => {
                    let tensor = self.arrived(posted)?;
                    self.tensors.insert(tag(message), tensor);
                }
                Posting::OneTaskAhead => _ = self.due.insert(tag(message), posted),
            }
        }
        Ok(())
    }

    /// Starts to send what was made, after all that is launched to prepare it.
    #[track_caller]
    fn send(&mut self, messages: &[Message]) -> Result<(), CollectiveError> {
        let outgoing = messages.iter().map(|message| {
            let tensor = self.tensors.remove(&tag(message));
            let tensor = tensor.expect("the schedule sends what was made");
            let tensor = self.ends.boundary.outgoing(tensor)?;
            Ok((message, tensor))
        });
        for (message, tensor) in outgoing.collect::<Result<Vec<_>, CollectiveError>>()? {
            let at = Instant::now();
            let (direction, stage) = (message.direction, message.peer);
            let boundary = self.ends.boundary;
            let pending = boundary.send_start(tensor, (direction, stage), &message.to_string());
            let label = self.label(message);
            self.sending.push(Sent { pending, label, at });
        }
        Ok(())
    }

    /// Posts the receive that comes next in the list.
    #[track_caller]
    fn post(&mut self, shape: Shape) {
        let (_, message) = self.unposted.pop_front().expect("the list receives another one");
        let ends = &self.ends;
        let incoming = ends.boundary.recv_start(
            shape,
            ends.dtype,
            &ends.device,
            (message.direction, message.peer),
            &message.to_string(),
        );
        self.posted.push_back(Posted {
            message,
            incoming,
            at: Instant::now(),
        });
    }

    /// Takes a tensor, waiting for it if it is sent from elsewhere; `None` if no stage makes it.
    pub(super) fn take(&mut self, tag: Tag) -> Result<Option<Tensor<D>>, CollectiveError> {
        match self.due.remove(&tag) {
            Some(posted) => self.arrived(posted).map(Some),
            None => Ok(self.tensors.remove(&tag)),
        }
    }

    /// Waits for a tensor.
    fn arrived(&self, posted: Posted) -> Result<Tensor<D>, CollectiveError> {
        let Posted { message, incoming, at } = posted;
        let (started, timeline) = (Instant::now(), self.ends.timeline);
        let label = self.label(&message);
        let arrived = incoming.pending.finished_at();
        let tensor = self.ends.boundary.finish(incoming)?;
        let finished = Instant::now();
        // What waited for nothing is no wait.
        if arrived.is_none() {
            timeline.record(Activity::Wait, label, started, finished);
        }
        let arrived = arrived.unwrap_or(finished);
        timeline.record(Activity::Receive, label, at, arrived);
        Ok(tensor)
    }

    /// Leaves a tensor to be sent, or to be consumed by another chunk of this rank.
    pub(super) fn put(&mut self, tag: Tag, tensor: Tensor<D>) {
        self.tensors.insert(tag, tensor);
    }

    /// Waits until everything has been handed over.
    pub(super) fn finish(mut self) -> Result<(), CollectiveError> {
        self.wait_for_sends(0)?;
        assert!(
            self.tensors.is_empty() && self.due.is_empty() && self.posted.is_empty() && self.unposted.is_empty(),
            "a checked schedule consumes everything, but {:?} are left",
            self.tensors.keys()
        );
        Ok(())
    }

    /// Waits until no more than `most` sends are under way. Nothing else holds a fast stage back where no gradients
    /// come back.
    pub(super) fn wait_for_sends(&mut self, most: usize) -> Result<(), CollectiveError> {
        self.reap()?;
        if self.sending.len() <= most {
            return Ok(());
        }
        let started = Instant::now();
        for sent in self.sending.drain(..self.sending.len() - most) {
            sent.end(self.ends.timeline)?;
        }
        self.ends
            .timeline
            .record(Activity::Wait, TimelineLabel::default(), started, Instant::now());
        Ok(())
    }

    /// Ends the sends that are done, which frees what was sent.
    pub(super) fn reap(&mut self) -> Result<(), CollectiveError> {
        self.sending
            .extract_if(.., |sent| sent.pending.is_done())
            .try_for_each(|sent| sent.end(self.ends.timeline))
    }

    fn label(&self, message: &Message) -> TimelineLabel {
        TimelineLabel {
            micro_batch: Some(message.micro_batch),
            chunk: Some(message.from / self.ends.boundary.num_stages()),
            direction: Some(message.direction),
            peer: Some(self.ends.boundary.rank_of(message.peer)),
        }
    }
}

fn tag(message: &Message) -> Tag {
    (message.direction, message.micro_batch, message.from)
}
