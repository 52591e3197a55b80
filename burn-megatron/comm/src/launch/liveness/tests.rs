//! Claims about the tables that hold for every sequence of events: the invariants of the README.

use std::ops::Range;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::members::Members;
use super::silence::Heartbeats;
use super::states::{Action, Event, PeerState, StoreEvent, StoreState, accuse};
use crate::launch::peer_failure::PeerFailure;
use crate::launch::store::{PeerId, Reply};

const RANKS: usize = 4;
/// The launcher of node 1 starts the last two ranks.
const NODE: usize = 1;
const NODE_RANKS: Range<usize> = 2..4;
const LIMIT: Duration = Duration::from_secs(3);

fn heartbeats(limit: Duration) -> Heartbeats {
    Heartbeats::new(Instant::now(), limit, "trains".into())
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Register),
        (1_u64..5000).prop_map(|millis| Event::Heartbeat(heartbeats(Duration::from_millis(millis)))),
        Just(Event::NothingHeard),
        Just(Event::Goodbye),
        Just(Event::Closed),
        Just(Event::Unreachable(Instant::now())),
        Just(Event::Ended),
    ]
}

/// Events of a rank that has registered and sends nothing else.
fn events_of_a_peer() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Heartbeat(heartbeats(LIMIT))),
        4 => Just(Event::NothingHeard),
        1 => Just(Event::Goodbye),
        1 => Just(Event::Closed),
        1 => Just(Event::Unreachable(Instant::now())),
    ]
}

proptest! {
    #[test]
    fn who_has_gone_stays_gone_and_is_reported_at_most_once(events in prop::collection::vec(events(), 0..40)) {
        let mut state = PeerState::Absent;
        let mut reports = 0;
        for event in events {
            let has_gone = matches!(state, PeerState::Left | PeerState::Lost | PeerState::NeverCame);
            let is_registering = matches!(event, Event::Register);
            let (next, action) = state.clone().on(event);
            if has_gone {
                prop_assert_eq!(&next, &state);
                prop_assert_eq!(&action, if is_registering { &Action::Refuse } else { &Action::Ignore });
            }
            if let Action::Report(_) = &action {
                reports += 1;
                let is_known = matches!(state, PeerState::Present(_));
                prop_assert_eq!(&next, if is_known { &PeerState::Lost } else { &PeerState::NeverCame });
            }
            state = next;
        }
        prop_assert_eq!(reports, usize::from(matches!(state, PeerState::Lost | PeerState::NeverCame)));
    }

    #[test]
    fn a_rank_is_given_up_only_after_its_whole_limit_in_vain(
        events in prop::collection::vec(prop_oneof![1 => Just(true), 6 => Just(false)], 0..60),
        millis in 1_u64..5000,
    ) {
        let limit = Duration::from_millis(millis);
        let mut state = PeerState::Present(None);
        let (mut was_heard, mut silence) = (false, Duration::ZERO);
        for is_heard in events {
            let piece = state.listening_time();
            let event = if is_heard { Event::Heartbeat(heartbeats(limit)) } else { Event::NothingHeard };
            (was_heard, silence) = (was_heard || is_heard, if is_heard { Duration::ZERO } else { silence + piece });
            let (next, action) = state.on(event);
            // A rank that was never heard is the rendezvous's to give up.
            prop_assert_eq!(action == Action::GiveUp, was_heard && !is_heard && silence >= limit);
            state = next;
        }
    }

    #[test]
    fn the_store_is_given_up_once_and_only_when_it_does_not_answer(
        events in prop::collection::vec(
            prop_oneof![
                2 => Just(None),
                1 => Just(Some(StoreEvent::Answer)),
                1 => Just(Some(StoreEvent::RelayedAnswer)),
            ],
            0..80,
        ),
        limit in 3_u32..12,
    ) {
        let mut store = StoreState::Asked(0);
        let mut in_vain = 0;
        let mut unanswered = 0;
        for event in events {
            unanswered = match event {
                None => unanswered + 1,
                Some(StoreEvent::RelayedAnswer) => unanswered.min(2),
                Some(_) => 0,
            };
            let is_beat = event.is_none();
            let was_out_of_reach = store == StoreState::OutOfReach;
            store = store.on(event.unwrap_or(StoreEvent::BeatDue(limit)));
            in_vain = if is_beat { in_vain + 1 } else { 0 };
            let is_out_of_reach = store == StoreState::OutOfReach;
            prop_assert!(!was_out_of_reach || is_out_of_reach);
            // After an answer over a second connection two heartbeats count as unanswered still.
            if is_out_of_reach && !was_out_of_reach {
                prop_assert!(is_beat && in_vain + 2 > limit, "{in_vain} in vain");
            }
            prop_assert!(is_out_of_reach || in_vain <= limit, "{in_vain} in vain");
            prop_assert!(is_out_of_reach || store.is_late() == (unanswered >= 3), "{unanswered} unanswered");
            let is_third = unanswered > 0 && unanswered % 3 == 0;
            prop_assert!(is_out_of_reach || store.is_worth_connecting() == is_third, "{unanswered} unanswered");
        }
    }

    #[test]
    fn the_first_cause_wins(ranks in prop::collection::vec(0_usize..RANKS, 1..10)) {
        let mut first = None;
        let were_first: Vec<bool> = ranks.iter().map(|&rank| accuse(&mut first, &PeerFailure::example(rank))).collect();
        prop_assert_eq!(first, Some(PeerFailure::example(ranks[0])));
        prop_assert!(were_first[0] && !were_first[1..].contains(&true));
    }
}

/// What may happen to a job.
#[derive(Clone, Debug)]
enum Act {
    Peer(usize, Event),
    Ended(usize),
    LauncherComes,
    Launcher(Event),
    LauncherFallsSilent,
    Accuse(usize),
    TimeIsUp,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..RANKS).prop_map(|rank| Act::Peer(rank, Event::Register)),
        6 => (0..RANKS, events_of_a_peer()).prop_map(|(rank, event)| Act::Peer(rank, event)),
        1 => (0..RANKS + 1).prop_map(Act::Ended),
        2 => Just(Act::LauncherComes),
        2 => events_of_a_peer().prop_map(Act::Launcher),
        1 => Just(Act::LauncherFallsSilent),
        1 => (0..RANKS).prop_map(Act::Accuse),
        1 => Just(Act::TimeIsUp),
    ]
}

fn accepted(registered: Result<(), Reply>) -> Action {
    registered.map_or(Action::Refuse, |()| Action::Accept)
}

/// Does it; returns what follows for the peer that it happens to, if it is in the job.
fn perform(members: &mut Members, act: &Act) -> Action {
    match act {
        Act::Peer(rank, Event::Register) => {
            return accepted(members.register(*rank, RANKS, &format!("node{rank}/boot")));
        }
        Act::Peer(rank, event) => return members.on(PeerId::Rank(*rank), event.clone()),
        Act::Ended(rank) => members.process_ended(*rank, "node/boot", "exit code 1"),
        Act::LauncherComes => return accepted(members.register_launcher(NODE, RANKS, "node/boot", NODE_RANKS)),
        Act::Launcher(event) => return members.on(PeerId::Launcher(NODE), event.clone()),
        Act::LauncherFallsSilent => members.launcher_fell_silent(NODE, Instant::now()),
        Act::Accuse(rank) => members.accuse(&PeerFailure::example(*rank)),
        Act::TimeIsUp => drop(members.rendezvous_timed_out(LIMIT)),
    }
    Action::Ignore
}

/// What has become of a rank, as a test has seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Fate {
    #[default]
    Absent,
    Here,
    Left,
    Lost,
    NeverCame,
}

/// A job as a test has seen it.
#[derive(Default)]
struct Seen {
    ranks: [Fate; RANKS],
    /// Whether the launcher is here, and has sent a heartbeat.
    launcher: Option<bool>,
}

impl Seen {
    fn first_that(&self, is: impl Fn(Fate) -> bool) -> Option<usize> {
        self.ranks.iter().position(|fate| is(*fate))
    }

    /// The rank that never came and that others wait for.
    fn awaited_in_vain(&self) -> Option<usize> {
        self.first_that(|fate| fate == Fate::Here)?;
        self.first_that(|fate| fate == Fate::NeverCame)
    }

    /// The launcher is lost: so are those of its ranks that have not come. Returns the first.
    fn lose_launcher(&mut self) -> Option<usize> {
        let mut lost = NODE_RANKS
            .filter(|rank| self.ranks[*rank] == Fate::Absent)
            .collect::<Vec<_>>()
            .into_iter();
        lost.clone().for_each(|rank| self.ranks[rank] = Fate::NeverCame);
        lost.next()
    }

    /// Notes what has happened; returns whom the verdict must name if there was none before.
    fn note(&mut self, act: &Act, action: &Action) -> Option<usize> {
        match (act, action) {
            (Act::Peer(rank, Event::Register), Action::Accept) => {
                self.ranks[*rank] = Fate::Here;
                self.awaited_in_vain()
            }
            (Act::Peer(rank, Event::Goodbye), Action::Accept) => {
                self.ranks[*rank] = Fate::Left;
                None
            }
            (Act::Peer(rank, _), Action::Report(_)) => {
                self.ranks[*rank] = Fate::Lost;
                Some(*rank)
            }
            (Act::Ended(rank), _) => {
                if self.ranks.get(*rank) == Some(&Fate::Absent) {
                    self.ranks[*rank] = Fate::NeverCame;
                }
                self.awaited_in_vain()
            }
            (Act::LauncherComes, Action::Accept) => {
                self.launcher = Some(false);
                None
            }
            (Act::Launcher(Event::Heartbeat(_)), Action::Accept) => {
                self.launcher = Some(true);
                None
            }
            (Act::Launcher(Event::Goodbye), Action::Accept) => {
                self.launcher = None;
                None
            }
            (Act::Launcher(_), Action::Report(_)) => {
                self.launcher = None;
                self.lose_launcher()
            }
            // It stays, for it may continue.
            (Act::LauncherFallsSilent, _) if self.launcher == Some(true) => self.lose_launcher(),
            (Act::Accuse(rank), _) => Some(*rank),
            (Act::TimeIsUp, _) => self.first_that(|fate| matches!(fate, Fate::Absent | Fate::NeverCame)),
            _ => None,
        }
    }

    /// Whether the event is one that a launcher which is here is lost by.
    fn loses_launcher(&self, act: &Act) -> bool {
        matches!(act, Act::Launcher(Event::Closed | Event::Unreachable(_))) && self.launcher.is_some()
    }

    /// Whether the event is one that a rank which is here is lost by.
    fn loses_rank(&self, act: &Act) -> bool {
        match act {
            Act::Peer(rank, Event::Closed | Event::Unreachable(_)) => self.ranks[*rank] == Fate::Here,
            _ => false,
        }
    }
}

proptest! {
    #[test]
    fn every_accusation_and_every_loss_ends_in_one_verdict(acts in prop::collection::vec(acts(), 0..60)) {
        let mut members = Members::new(RANKS);
        let mut seen = Seen::default();
        for act in acts {
            let before = members.first_failure().cloned();
            let is_lost = seen.loses_rank(&act) || seen.loses_launcher(&act);
            let action = perform(&mut members, &act);
            prop_assert_eq!(matches!(action, Action::Report(_)), is_lost, "{:?}", &act);
            match (&act, &action) {
                (Act::Peer(rank, Event::Register), Action::Accept) => {
                    prop_assert_eq!(seen.ranks[*rank], Fate::Absent, "rank {} has come back", rank);
                    prop_assert!(before.is_none(), "a rank is let in to a job that has failed");
                }
                (Act::Peer(rank, Event::Heartbeat(_)), action) => {
                    prop_assert_eq!(action == &Action::Accept, seen.ranks[*rank] == Fate::Here);
                }
                (Act::LauncherComes, action) => {
                    let is_free = seen.launcher.is_none() && before.is_none();
                    prop_assert_eq!(action == &Action::Accept, is_free);
                }
                _ => {}
            }
            // A verdict comes exactly where somebody is to be named, and never changes.
            let named = seen.note(&act, &action);
            let verdict = members.first_failure().cloned();
            match &before {
                Some(_) => prop_assert_eq!(&before, &verdict, "the first cause wins"),
                None => prop_assert_eq!(verdict.as_ref().map(|first| first.rank), named, "{:?}", &act),
            }
            if let (None, Act::Accuse(rank)) = (&before, &act) {
                prop_assert_eq!(verdict, Some(PeerFailure::example(*rank)));
            }
        }
        let is_any_here = seen.first_that(|fate| fate == Fate::Here).is_some();
        prop_assert_eq!(members.is_empty(), seen.launcher.is_none() && !is_any_here);
        let missing: Vec<bool> = seen.ranks.map(|fate| matches!(fate, Fate::Absent | Fate::NeverCame)).into();
        let missing: Vec<usize> = (0..RANKS).filter(|rank| missing[*rank]).collect();
        prop_assert_eq!(members.missing(), missing);
    }

    #[test]
    fn ranks_that_never_come_are_one_failure_in_whatever_order_their_ends_are_known(
        ends in Just((0..RANKS).collect::<Vec<_>>()).prop_shuffle(),
        count in 1..RANKS,
    ) {
        let mut members = Members::new(RANKS);
        let (ended, waiting) = ends.split_at(count);
        for &rank in ended {
            members.process_ended(rank, "node/boot", "exit code 1");
            prop_assert!(members.first_failure().is_none(), "no rank waits for it");
        }
        prop_assert_eq!(members.register(waiting[0], RANKS, "node/boot"), Ok(()));
        prop_assert_eq!(members.first_failure().map(|first| first.rank), ended.iter().copied().min());
        for &rank in ended {
            let refusal = members.register(rank, RANKS, "node/boot");
            prop_assert!(matches!(refusal, Err(Reply::Failed(_))), "{refusal:?}");
        }
    }

    #[test]
    fn what_becomes_of_a_rank_does_not_depend_on_when_the_others_report(
        events in prop::collection::vec(prop::collection::vec(events_of_a_peer(), 0..8), RANKS),
        picks in prop::collection::vec(0..RANKS, RANKS * 8),
    ) {
        let play = |order: &mut dyn Iterator<Item = usize>| {
            let mut members = Members::new(RANKS);
            let mut events: Vec<_> = events.iter().cloned().map(Vec::into_iter).collect();
            (0..RANKS).for_each(|rank| members.register(rank, RANKS, "node/boot").unwrap());
            let mut lost = Vec::new();
            for rank in order {
                let event = events[rank].next();
                let action = event.map(|event| members.on(PeerId::Rank(rank), event));
                if let Some(Action::Report(_)) = action {
                    lost.push(rank);
                }
            }
            let first = members.first_failure().map(|first| first.rank);
            assert_eq!(first, lost.first().copied(), "the first that is lost is the cause");
            let status = |rank| members.status_of(rank, Instant::now());
            let is_heard = |rank| status(rank).is_some_and(|status| status.heartbeats.is_some());
            let heard: Vec<bool> = (0..RANKS).map(is_heard).collect();
            lost.sort_unstable();
            (lost, heard, members.is_empty())
        };
        let one_after_the_other = || (0..RANKS).flat_map(|rank| [rank; 8]);
        let mixed = play(&mut picks.iter().copied().chain(one_after_the_other()));
        prop_assert_eq!(play(&mut one_after_the_other()), mixed);
    }
}
