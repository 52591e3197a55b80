//! Tests of the frames: what is written is read, and nothing that a stranger sends is trusted.

use proptest::prelude::*;

use super::*;
use crate::limits::MAX_WORLD_SIZE;

fn failures() -> impl Strategy<Value = PeerFailure> {
    (any::<usize>(), ".{0,40}", ".{0,40}").prop_map(|(rank, host, what)| PeerFailure { rank, host, what })
}

fn millis() -> impl Strategy<Value = Duration> {
    any::<u32>().prop_map(|millis| Duration::from_millis(millis.into()))
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        (any::<usize>(), any::<usize>(), ".{0,40}", millis()).prop_map(|(rank, world_size, host, timeout)| {
            Request::Hello {
                rank,
                world_size,
                host,
                timeout,
            }
        }),
        Just(Request::Goodbye),
        (".{0,40}", any::<Vec<u8>>()).prop_map(|(key, value)| Request::Set { key, value }),
        (".{0,40}", millis()).prop_map(|(key, timeout)| Request::Wait { key, timeout }),
        (".{0,40}", any::<i64>()).prop_map(|(key, delta)| Request::Add { key, delta }),
        ".{0,40}".prop_map(|key| Request::Delete { key }),
        failures().prop_map(Request::Fail),
        (any::<usize>(), any::<usize>(), ".{0,20}", any::<[usize; 2]>()).prop_map(
            |(node_rank, world_size, host, [first, end])| Request::Watch {
                node_rank,
                world_size,
                host,
                ranks: first..end,
            }
        ),
        failures().prop_map(|PeerFailure { rank, host, what }| Request::Ended { rank, host, what }),
        (
            prop::collection::vec((".{0,40}", any::<usize>(), any::<usize>(), any::<Vec<u8>>()), 0..4),
            millis()
        )
            .prop_map(|(sayings, timeout)| {
                let sayings = sayings.into_iter().map(|(key, index, size, value)| Saying {
                    key,
                    index,
                    size,
                    value,
                });
                Request::Gather {
                    sayings: sayings.collect(),
                    timeout,
                }
            }),
        (millis(), ".{0,40}").prop_map(|(limit, progress)| Request::Heartbeat { limit, progress }),
        any::<usize>().prop_map(|rank| Request::AskRank { rank }),
        (any::<bool>(), any::<usize>(), millis(), ".{0,40}").prop_map(|(is_rank, number, limit, progress)| {
            Request::RelayedHeartbeat {
                peer: if is_rank {
                    PeerId::Rank(number)
                } else {
                    PeerId::Launcher(number)
                },
                limit,
                progress,
            }
        }),
    ]
}

fn replies() -> impl Strategy<Value = Reply> {
    prop_oneof![
        Just(Reply::Done),
        any::<Vec<u8>>().prop_map(|value| Reply::Value(value.into())),
        any::<i64>().prop_map(Reply::Count),
        Just(Reply::TimedOut),
        ".{0,40}".prop_map(Reply::Rejected),
        failures().prop_map(Reply::Failed),
        (".{0,20}", prop::collection::vec("[a-d]|.{0,20}", 0..9)).prop_map(|(job_id, hosts)| {
            let nodes = NodeTable::of_hosts(hosts.iter().map(String::as_str));
            let first_host = hosts.first().cloned().unwrap_or_default();
            Reply::Roster {
                job_id,
                nodes,
                first_host,
            }
        }),
        any::<Vec<usize>>().prop_map(Reply::Missing),
        Just(Reply::Closing),
        ".{0,20}".prop_map(|job_id| Reply::Welcome { job_id }),
        Just(Reply::Heard),
        (".{0,20}", prop::option::of((millis(), millis(), ".{0,40}"))).prop_map(|(host, heartbeats)| {
            let heartbeats = heartbeats.map(|(silence, limit, progress)| HeartbeatStatus {
                silence,
                limit,
                progress,
            });
            Reply::Rank(RankStatus { host, heartbeats })
        }),
        Just(Reply::NotPresent),
        groups().prop_map(Reply::Gathered),
        any::<(usize, Vec<usize>)>().prop_map(|(saying, members)| Reply::Absent(Absent { saying, members })),
    ]
}

fn groups() -> impl Strategy<Value = Vec<Runs>> {
    let values = prop::collection::vec(prop::collection::vec(0_u8..2, 0..3), 0..9);
    prop::collection::vec(values.prop_map(Runs::of), 0..4)
}

proptest! {
    #[test]
    fn requests_survive_the_wire(request in requests()) {
        let body = read_body(&mut request.to_frame().as_slice())?;
        prop_assert_eq!(Request::from_body(&body), Ok(request));
    }

    /// The runs of groups are written by themselves, after the beginning.
    #[cfg(feature = "tcp")]
    #[test]
    fn a_gathered_reply_is_its_beginning_and_the_runs(groups in groups()) {
        let runs: Vec<Arc<[u8]>> = groups.iter().map(|runs| runs.to_bytes().into()).collect();
        let frame = [beginning_of_gathered(&runs), runs.concat()].concat();
        prop_assert_eq!(frame, Reply::Gathered(groups).to_frame());
    }

    #[test]
    fn replies_survive_the_wire(reply in replies()) {
        let body = read_body(&mut reply.to_frame().as_slice())?;
        prop_assert_eq!(Reply::from_body(&body), Ok(reply));
    }

    #[test]
    fn cut_or_changed_frames_never_panic(request in requests(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut frame = request.to_frame();
        let at = at.index(frame.len());
        prop_assert!(read_body(&mut &frame[..at]).is_err());
        frame[at] = byte;
        if let Ok(body) = read_body(&mut frame.as_slice()) {
            prop_assert!(body.capacity() <= FIRST_ALLOCATION_BYTES);
            drop(Request::from_body(&body));
        }
    }
}

#[test]
fn lengths_are_checked_before_allocation() {
    let error = read_body(&mut [0xff; 64].as_slice()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    // Lists that claim 2^63 elements, the most that there may be and one more; a value that claims 4 GiB.
    let body = |reply: Reply| reply.to_frame()[4..].to_vec();
    let cut_short = "unknown kind of message, or a list that is cut short or too long";
    let empty = body(Reply::Missing(Vec::new()));
    let list = [&empty[..1], &[0xff; 9], &[1]].concat();
    assert_eq!(Reply::from_body(&list), Err(Malformed(cut_short)));
    let longest = body(Reply::Missing(vec![0; MAX_WORLD_SIZE]));
    assert!(Reply::from_body(&longest).is_ok());
    let longer = body(Reply::Missing(vec![0; MAX_WORLD_SIZE + 1]));
    assert_eq!(Reply::from_body(&longer), Err(Malformed(cut_short)));
    let value = [&body(Reply::Value([].into()))[..1], &[0xff, 0xff, 0xff, 0xff, 0xf]].concat();
    assert_eq!(Reply::from_body(&value), Err(Malformed("a field is cut short")));
}

#[test]
fn limits_of_fields_hold_and_the_reason_is_said() {
    // Numbers of two and three bytes: what a longer field of the same message begins with.
    let varint = |number: usize| match number {
        0..0x4000 => vec![number as u8 | 0x80, (number >> 7) as u8],
        _ => vec![number as u8 | 0x80, (number >> 7) as u8 | 0x80, (number >> 14) as u8],
    };
    let request = |kind: &Request, fields: &[&[u8]]| [&kind.to_frame()[4..5], &fields.concat()].concat();
    let key = Request::Delete { key: String::new() };
    let host = Request::Ended {
        rank: 0,
        host: String::new(),
        what: String::new(),
    };
    let progress = Request::Heartbeat {
        limit: Duration::ZERO,
        progress: String::new(),
    };
    let too_long = Err(Malformed("a field is longer than its limit, or a number than it needs"));
    for (kind, limit, before, after) in [
        (key, MAX_KEY_BYTES, &[][..], &[][..]),
        (host, MAX_TEXT_BYTES, &[0], &[0]),
        (progress, MAX_PROGRESS_BYTES, &[0], &[]),
    ] {
        let of_length = |length| request(&kind, &[before, &varint(length), &vec![b'x'; length], after]);
        assert!(Request::from_body(&of_length(limit)).is_ok(), "{kind:?}");
        assert_eq!(Request::from_body(&of_length(limit + 1)), too_long, "{kind:?}");
    }
    let ask = Request::AskRank { rank: 0 };
    for (fields, reason) in [
        (
            &[0x80, 0][..],
            "a field is longer than its limit, or a number than it needs",
        ),
        (&[0, 0], "bytes follow the last field"),
        (&[], "a field is cut short"),
        (&[0xff; 12], "a number is too large"),
    ] {
        assert_eq!(Request::from_body(&request(&ask, &[fields])), Err(Malformed(reason)));
    }
    let not_text = request(&Request::Delete { key: String::new() }, &[&[1, 0xff]]);
    assert_eq!(Request::from_body(&not_text), Err(Malformed("a text is not UTF-8")));
    let unknown = "unknown kind of message, or a list that is cut short or too long";
    assert_eq!(Request::from_body(&[0x7f]), Err(Malformed(unknown)));
    let longest = Reply::Value(vec![7; MAX_VALUE_BYTES].into());
    let frame = longest.to_frame();
    assert!(frame.len() - 4 <= MAX_FRAME_BYTES);
    assert!(Reply::from_body(&frame[4..]) == Ok(longest));
    let mut longer = [&frame[4..5], &varint(0), &vec![7; MAX_VALUE_BYTES + 1]].concat();
    longer.splice(1..3, [0x81, 0x80, 0x80, 0x20]); // 64 MiB and a byte
    assert!(Reply::from_body(&longer).is_err());
}

#[test]
fn time_limits_are_rounded_up() {
    for (sent, heard) in [(1, 1), (1_000_000, 1), (1_000_001, 2), (0, 0)] {
        let timeout = Duration::from_nanos(sent);
        let frame = Request::Wait {
            key: "a".into(),
            timeout,
        }
        .to_frame();
        let Ok(Request::Wait { timeout, .. }) = Request::from_body(&frame[4..]) else {
            panic!("not a wait")
        };
        assert_eq!(timeout, Duration::from_millis(heard));
    }
}

#[test]
fn long_reasons_are_cut_at_a_character() {
    let what = "é".repeat(MAX_TEXT_BYTES);
    let frame = Request::Fail(PeerFailure::new(0, String::new(), what)).to_frame();
    let Request::Fail(failure) = Request::from_body(&frame[4..]).unwrap() else {
        panic!("not a failure")
    };
    assert_eq!(failure.what.len(), MAX_TEXT_BYTES);
}
