//! Who has not come to a call over the tree, and how all ranks learn of it.

use super::Meeting;
use super::frame::{self, Kind, MAX_LISTED};
use std::time::Instant;

/// A wait says upwards for whom once it has used up this part of its time, and again, if that has changed, after this
/// part: the rank above may have waited for long.
const REPORTED_AFTER: u32 = 64;
/// It says so downwards, to many ranks, after this part.
const HANDED_DOWN_AFTER: u32 = 8;

impl Meeting<'_> {
    /// Returns the ranks below this one that have not come, as far as it knows.
    fn absent_below(&self) -> Vec<usize> {
        let children = self.neighbours.iter().zip(&self.brought);
        let awaited = children
            .filter(|(_, brought)| brought.is_none())
            .map(|(child, _)| child);
        let absent = awaited.flat_map(|child| match &child.absent {
            Some(absent) if !absent.is_empty() => absent.clone(),
            _ => vec![child.peer],
        });
        absent.take(MAX_LISTED).collect()
    }

    /// Returns the ranks that have not come, as far as this one knows, in rank order.
    pub(super) fn absent(&self) -> Vec<usize> {
        let mut absent = self.absent_below();
        if self.shape.parent.is_some()
            && let Some(parent) = self.neighbours.last()
        {
            match &parent.absent {
                // Of the ranks below this one it has heard from this one.
                Some(elsewhere) => absent.extend(elsewhere.iter().filter(|rank| !self.shape.own.contains(rank))),
                // It may not have had time to say.
                None if self.since.elapsed() < self.engine.health.timeout / 2 && !absent.is_empty() => {}
                None => absent.push(parent.peer),
            }
            if absent.is_empty() {
                absent.push(parent.peer);
            }
        }
        absent.sort_unstable();
        absent.dedup();
        absent.truncate(MAX_LISTED);
        absent
    }

    /// Says to the neighbours for whom this rank waits, if it has waited for a while and they do not know.
    pub(super) fn say_who_is_absent(&mut self) {
        let timeout = self.engine.health.timeout;
        if self.said_at.unwrap_or(self.since).elapsed() <= timeout / REPORTED_AFTER {
            return;
        }
        let hands_down = self.since.elapsed() > timeout / HANDED_DOWN_AFTER;
        self.said_at = Some(Instant::now());
        let (below, all) = (self.absent_below(), self.absent());
        for index in 0..self.neighbours.len() {
            let is_child = index < self.brought.len();
            // A parent that has the calls of all below waits for none of them.
            if !is_child && below.is_empty() {
                continue;
            }
            let absent = if is_child { &all } else { &below };
            let is_known = self.neighbours[index].said.as_ref() == Some(absent);
            if is_known || (is_child && !(hands_down && self.has_link(index))) {
                continue;
            }
            self.neighbours[index].said = Some(absent.clone());
            self.send(index, Kind::Waits, &[&frame::encode_list(absent)]);
        }
    }

    /// Lets the neighbours know that the call has ended because these ranks have not come.
    pub(super) fn end_everywhere(&mut self, absent: &[usize]) {
        let body = frame::encode_list(absent);
        for index in 0..self.neighbours.len() {
            // What has been sent up cannot be followed by anything.
            let has_sent_calls = index >= self.brought.len() && self.brought.iter().all(Option::is_some);
            if self.has_link(index) && !has_sent_calls {
                self.send(index, Kind::TimedOut, &[&body]);
            }
        }
    }
}
