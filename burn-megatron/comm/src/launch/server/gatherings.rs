//! [`Gatherings`]: what the members of groups tell each other, each all the others, in one round.
//!
//! Knows nothing of sockets. A gathering is there from the first member's word until the last one has the answer.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::launch::store::protocol::{MAX_GATHERED_VALUE_BYTES, Runs, Saying};

/// Largest sum of what members of unfinished gatherings have said, in bytes: every answer fits into a frame.
const MAX_BYTES: usize = 48 << 20;
/// What a member costs in addition to its value.
const MEMBER_BYTES: usize = 64;
/// Absent members that an answer names.
const MAX_NAMED: usize = 64;

/// The answer of a gathering, once there is one: the bytes of its [`Runs`], made once for all members.
pub(super) type Answer = watch::Receiver<Option<Arc<[u8]>>>;

/// The unfinished gatherings, by key.
#[derive(Debug, Default)]
pub(super) struct Gatherings {
    open: HashMap<String, Gathering>,
    bytes: usize,
}

#[derive(Debug)]
struct Gathering {
    /// By index; empty once there is an answer.
    values: Vec<Option<Vec<u8>>>,
    absent: usize,
    /// By index, who has the answer.
    answered: Vec<bool>,
    unanswered: usize,
    answer: watch::Sender<Option<Arc<[u8]>>>,
    bytes: usize,
}

impl Gatherings {
    /// Takes what a member says; returns where the answer comes, or why the value is refused.
    ///
    /// A member may say the same again, if it has stopped waiting for the answer.
    pub(super) fn say(&mut self, saying: &Saying) -> Result<Answer, String> {
        let Saying {
            key,
            index,
            size,
            value,
        } = saying;
        let (index, size) = (*index, *size);
        if index >= size {
            return Err(format!("{key:?}: member {index} of {size}"));
        }
        if value.len() > MAX_GATHERED_VALUE_BYTES {
            let bytes = value.len();
            return Err(format!(
                "{key:?}: {bytes} bytes of member {index}; a value has at most {MAX_GATHERED_VALUE_BYTES}"
            ));
        }
        // What is said again is not kept again.
        let added = match self.open.get(key) {
            None => key.len().saturating_add(size.saturating_mul(MEMBER_BYTES)) + value.len(),
            Some(gathering) if gathering.values.get(index).is_some_and(Option::is_none) => value.len(),
            Some(_) => 0,
        };
        let bytes = self.bytes.saturating_add(added);
        if bytes > MAX_BYTES {
            return Err(format!(
                "{key:?} would bring what groups gather to {bytes} bytes; there is room for {MAX_BYTES}"
            ));
        }
        let gathering = self.open.entry(key.clone()).or_insert_with(|| Gathering::new(size));
        gathering.say(key, index, size, value)?;
        gathering.bytes += added;
        self.bytes = bytes;
        Ok(gathering.answer.subscribe())
    }

    /// Returns the first members that have said nothing.
    pub(super) fn absent(&self, key: &str) -> Vec<usize> {
        let Some(gathering) = self.open.get(key) else {
            return vec![];
        };
        let members = gathering.values.iter().enumerate();
        let absent = members.filter(|(_, value)| value.is_none());
        absent.map(|(index, _)| index).take(MAX_NAMED).collect()
    }

    /// Notes that a member has the answer.
    pub(super) fn answered(&mut self, key: &str, index: usize) {
        let Some(gathering) = self.open.get_mut(key) else {
            return;
        };
        // Another group may have taken the key meanwhile.
        let Some(answered) = gathering.answered.get_mut(index) else {
            return;
        };
        if !std::mem::replace(answered, true) {
            gathering.unanswered -= 1;
        }
        if gathering.unanswered == 0 {
            self.bytes -= gathering.bytes;
            self.open.remove(key);
        }
    }
}

impl Gathering {
    fn new(size: usize) -> Self {
        Self {
            values: vec![None; size],
            absent: size,
            answered: vec![false; size],
            unanswered: size,
            answer: watch::Sender::new(None),
            bytes: 0,
        }
    }

    fn say(&mut self, key: &str, index: usize, size: usize, value: &[u8]) -> Result<(), String> {
        if size != self.answered.len() {
            let others = self.answered.len();
            return Err(format!(
                "{key:?}: member {index} takes the group to have {size} members, others {others}"
            ));
        }
        if self.answered[index] {
            return Err(format!("{key:?}: member {index} has the answer already"));
        }
        if self.absent == 0 {
            return Ok(());
        }
        match &mut self.values[index] {
            Some(said) if said == value => {}
            Some(_) => return Err(format!("{key:?}: member {index} has said something else before")),
            place => {
                *place = Some(value.to_vec());
                self.absent -= 1;
            }
        }
        if self.absent == 0 {
            let values = std::mem::take(&mut self.values).into_iter().flatten();
            self.answer.send_replace(Some(Runs::of(values).to_bytes().into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::launch::store::protocol::{Reply, beginning_of_gathered};

    fn values(answer: &Answer) -> Option<Vec<Vec<u8>>> {
        let bytes = answer.borrow().clone()?;
        let frame = [beginning_of_gathered(std::slice::from_ref(&bytes)), bytes.to_vec()].concat();
        match Reply::from_body(&frame[4..]) {
            Ok(Reply::Gathered(groups)) if groups.len() == 1 => Some(groups[0].values().map(<[u8]>::to_vec).collect()),
            other => panic!("{other:?}"),
        }
    }

    fn saying(index: usize, size: usize, value: &[u8]) -> Saying {
        Saying {
            key: "key".into(),
            index,
            size,
            value: value.to_vec(),
        }
    }

    proptest! {
        #[test]
        fn every_member_gets_what_all_have_said(
            said in prop::collection::vec(prop::collection::vec(0_u8..2, 0..3), 1..9),
            order in any::<u64>(),
            again in any::<[bool; 9]>(),
        ) {
            let mut gatherings = Gatherings::default();
            let size = said.len();
            let mut members: Vec<usize> = (0..size).collect();
            members.sort_by_key(|&index| order.rotate_left(index as u32 * 7) ^ (index as u64).wrapping_mul(order));
            let mut answers = Vec::new();
            for (count, &index) in members.iter().enumerate() {
                for _ in 0..=usize::from(again[index]) {
                    let answer = gatherings.say(&saying(index, size, &said[index])).unwrap();
                    prop_assert_eq!(values(&answer).is_some(), count + 1 == size);
                    answers.push((index, answer));
                }
                let mut absent = members[count + 1..].to_vec();
                absent.sort_unstable();
                prop_assert_eq!(gatherings.absent("key"), absent);
            }
            for (index, answer) in &answers {
                prop_assert_eq!(values(answer), Some(said.clone()));
                gatherings.answered("key", *index);
            }
            prop_assert!(gatherings.open.is_empty());
            prop_assert_eq!(gatherings.bytes, 0);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut gatherings = Gatherings::default();
        let mut refusal = |index, size, value: &[u8]| gatherings.say(&saying(index, size, value)).err();
        assert_eq!(refusal(2, 2, b""), Some("\"key\": member 2 of 2".to_owned()));
        assert!(
            refusal(0, 2, &[0; MAX_GATHERED_VALUE_BYTES + 1])
                .unwrap()
                .contains("at most")
        );
        assert_eq!(refusal(0, 2, b"a"), None);
        assert!(refusal(0, 2, b"b").unwrap().contains("something else before"));
        assert!(refusal(1, 3, b"a").unwrap().contains("to have 3 members, others 2"));
        assert!(
            refusal(0, usize::MAX / MEMBER_BYTES, b"a")
                .unwrap()
                .contains("others 2")
        );
        assert_eq!(refusal(1, 2, b"b"), None);
        gatherings.answered("key", 0);
        let refusal = gatherings.say(&saying(0, 2, b"")).unwrap_err();
        assert!(refusal.contains("has the answer already"), "{refusal}");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut gatherings = Gatherings::default();
        let members = MAX_BYTES / MEMBER_BYTES;
        let refusal = gatherings.say(&saying(0, members, b"")).unwrap_err();
        assert!(refusal.contains("there is room for"), "{refusal}");
        assert!(gatherings.open.is_empty());
        assert!(gatherings.say(&saying(0, members - 1, b"")).is_ok());
        assert!(
            gatherings
                .say(&Saying {
                    key: "other".into(),
                    ..saying(0, 2, b"")
                })
                .is_err()
        );
    }
}
