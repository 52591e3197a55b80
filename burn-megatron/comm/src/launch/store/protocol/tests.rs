//! Tests of the frames: what is written is read, and nothing that a stranger sends is trusted.

use proptest::prelude::*;

use super::*;

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
        (millis(), ".{0,40}").prop_map(|(limit, progress)| Request::Heartbeat { limit, progress }),
        any::<usize>().prop_map(|rank| Request::AskPulse { rank }),
        (any::<bool>(), any::<usize>(), millis(), ".{0,40}").prop_map(|(is_rank, number, limit, progress)| {
            Request::HeartbeatBeside {
                life: if is_rank {
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
        any::<Vec<u8>>().prop_map(Reply::Value),
        any::<i64>().prop_map(Reply::Count),
        Just(Reply::TimedOut),
        ".{0,40}".prop_map(Reply::Rejected),
        failures().prop_map(Reply::Failed),
        (".{0,20}", prop::collection::vec(".{0,20}", 0..9)).prop_map(|(job_id, hosts)| Reply::Roster { job_id, hosts }),
        any::<Vec<usize>>().prop_map(Reply::Missing),
        Just(Reply::Closing),
        ".{0,20}".prop_map(|job_id| Reply::Welcome { job_id }),
        Just(Reply::Heard),
        (millis(), millis(), ".{0,40}").prop_map(|(silence, limit, progress)| Reply::HeartbeatStatus(
            HeartbeatStatus {
                silence,
                limit,
                progress
            }
        )),
        Just(Reply::NoPulse),
    ]
}

proptest! {
    #[test]
    fn requests_survive_the_wire(request in requests()) {
        let body = read_body(&mut request.to_frame().as_slice())?;
        prop_assert_eq!(Request::from_body(&body), Ok(request));
    }

    #[test]
    fn replies_survive_the_wire(reply in replies()) {
        let body = read_body(&mut reply.to_frame().as_slice())?;
        prop_assert_eq!(Reply::from_body(&body), Ok(reply));
    }

    /// What decodes at all encodes to the same bytes, so a message is never larger than what arrived.
    #[test]
    fn random_bytes_never_panic_nor_grow(kind in 0_u8..15, mut bytes in any::<Vec<u8>>()) {
        bytes.insert(0, kind);
        if let Ok(request) = Request::from_body(&bytes) {
            prop_assert_eq!(&request.to_frame()[4..], &bytes);
        }
        if let Ok(reply) = Reply::from_body(&bytes) {
            prop_assert_eq!(&reply.to_frame()[4..], &bytes);
        }
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
    // A list that claims 2^60 elements, and a value that claims 4 GiB.
    let list: Vec<u8> = [&[8][..], &(1_u64 << 60).to_le_bytes()].concat();
    assert_eq!(Reply::from_body(&list), Err(Malformed("a list is cut short")));
    assert_eq!(
        Reply::from_body(&[2, 255, 255, 255, 255]),
        Err(Malformed("a field is longer than its limit"))
    );
}

#[test]
fn long_reasons_are_cut_at_a_character() {
    let what = "é".repeat(MAX_TEXT_BYTES);
    let frame = Request::Fail(PeerFailure {
        rank: 0,
        host: String::new(),
        what,
    })
    .to_frame();
    let Request::Fail(failure) = Request::from_body(&frame[4..]).unwrap() else {
        panic!("not a failure")
    };
    assert_eq!(failure.what.len(), MAX_TEXT_BYTES);
}
