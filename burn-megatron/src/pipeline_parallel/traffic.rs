//! What comes into a stage and goes out of it while its list is carried out.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use burn::tensor::{DType, Shape, Tensor, TensorPrimitive};

use super::boundary::{Boundary, Incoming};
use super::schedule::{Action, Direction, Message};
use super::timeline::{Activity, Timeline, TimelineLabel};
use crate::collectives::{CollectiveBackend, CollectiveError, Pending};

/// How many receives are under way before they are needed: an exchange has two at most. Each holds memory for its
/// tensor.
const RECEIVES_AHEAD: usize = 2;

/// What identifies a tensor between two virtual stages: the direction, the micro-batch, and the virtual stage that
/// made it.
pub(super) type Tag = (Direction, usize, usize);

/// The tensors that wait to be consumed or sent, and the transfers under way.
pub(super) struct Traffic<'a, B: CollectiveBackend, const D: usize> {
    boundary: &'a Boundary,
    timeline: &'a Timeline,
    dtype: DType,
    device: B::Device,
    /// What will be received and has not been posted, in the order of the list.
    unposted: VecDeque<Message>,
    posted: VecDeque<Posted<B>>,
    /// What the list has received, and nothing has asked for yet: it is waited for when it is needed, not before.
    due: HashMap<Tag, Posted<B>>,
    /// What was made here and has neither been consumed nor sent.
    tensors: HashMap<Tag, Tensor<B, D>>,
    sending: Vec<Sent>,
}

struct Posted<B: CollectiveBackend> {
    message: Message,
    incoming: Incoming<B>,
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

impl<'a, B: CollectiveBackend, const D: usize> Traffic<'a, B, D> {
    /// Returns the traffic of a list of actions, before the first.
    pub(super) fn new(
        actions: &[Action],
        boundary: &'a Boundary,
        timeline: &'a Timeline,
        dtype: DType,
        device: B::Device,
    ) -> Self {
        let unposted = actions.iter().flat_map(|action| match action {
            Action::Recv(message) => std::slice::from_ref(message),
            Action::Exchange { recvs, .. } => recvs,
            _ => &[],
        });
        Self {
            boundary,
            timeline,
            dtype,
            device,
            unposted: unposted.copied().collect(),
            posted: VecDeque::new(),
            due: HashMap::new(),
            tensors: HashMap::new(),
            sending: Vec::new(),
        }
    }

    /// Posts the receives that come next in the list, up to the first of which `shape` does not know how large it is.
    #[track_caller]
    pub(super) fn post_receives(&mut self, shape: impl Fn(&Message) -> Option<Shape>) {
        while self.posted.len() < RECEIVES_AHEAD
            && let Some(&message) = self.unposted.front()
            && let Some(shape) = shape(&message)
        {
            self.unposted.pop_front();
            let incoming = self.boundary.recv_start(
                shape,
                self.dtype,
                &self.device,
                (message.direction, message.peer),
                &message.to_string(),
            );
            self.posted.push_back(Posted {
                message,
                incoming,
                at: Instant::now(),
            });
        }
    }

    /// Takes note that the list has come to a message.
    pub(super) fn receive(&mut self, message: &Message) {
        let posted = self
            .posted
            .pop_front()
            .expect("receives are posted in the order of the list");
        assert_eq!(posted.message, *message, "receives are posted in the order of the list");
        self.due.insert(tag(message), posted);
    }

    /// Starts to send what was made.
    #[track_caller]
    pub(super) fn send(&mut self, message: &Message) -> Result<(), CollectiveError> {
        let tensor = self.tensors.remove(&tag(message));
        let tensor = tensor.expect("the schedule sends what was made");
        let at = Instant::now();
        let tensor = tensor.into_primitive().tensor();
        let pending = self
            .boundary
            .send_start::<B>(tensor, message.direction, message.peer, &message.to_string())?;
        let label = self.label(message);
        self.sending.push(Sent { pending, label, at });
        Ok(())
    }

    /// Takes a tensor, waiting for it if it is sent from elsewhere; `None` if no stage makes it.
    pub(super) fn take(&mut self, tag: Tag) -> Result<Option<Tensor<B, D>>, CollectiveError> {
        let Some(Posted { message, incoming, at }) = self.due.remove(&tag) else {
            return Ok(self.tensors.remove(&tag));
        };
        let started = Instant::now();
        let label = self.label(&message);
        let arrived = incoming.pending.finished_at();
        let tensor = self.boundary.finish(incoming)?;
        let finished = Instant::now();
        // What waited for nothing is no wait.
        if arrived.is_none() {
            self.timeline.record(Activity::Wait, label, started, finished);
        }
        let arrived = arrived.unwrap_or(finished);
        self.timeline.record(Activity::Receive, label, at, arrived);
        Ok(Some(Tensor::from_primitive(TensorPrimitive::Float(tensor))))
    }

    /// Leaves a tensor to be sent, or to be consumed by another chunk of this rank.
    pub(super) fn put(&mut self, tag: Tag, tensor: Tensor<B, D>) {
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
            sent.end(self.timeline)?;
        }
        self.timeline
            .record(Activity::Wait, TimelineLabel::default(), started, Instant::now());
        Ok(())
    }

    /// Ends the sends that are done, which frees what was sent.
    pub(super) fn reap(&mut self) -> Result<(), CollectiveError> {
        self.sending
            .extract_if(.., |sent| sent.pending.is_done())
            .try_for_each(|sent| sent.end(self.timeline))
    }

    fn label(&self, message: &Message) -> TimelineLabel {
        TimelineLabel {
            micro_batch: Some(message.micro_batch),
            chunk: Some(message.from / self.boundary.num_stages()),
            direction: Some(message.direction),
            peer: Some(self.boundary.rank_of(message.peer)),
        }
    }
}

fn tag(message: &Message) -> Tag {
    (message.direction, message.micro_batch, message.from)
}
