//! Tests of the handshake without a network: what passes, however its bytes are cut, and what does not.

use proptest::prelude::*;

use super::*;

const TOKEN: &[u8] = b"the token of the job";
const CLAIM: Claim = [7; CLAIM_BYTES];

fn read(claim: &Claim) -> Result<Claim, &'static str> {
    Ok(*claim)
}

/// Feeds bytes in pieces of these lengths; returns what the acceptor has said, and what it did at last.
fn feed(acceptance: &mut Acceptance<Claim>, mut bytes: &[u8], pieces: &[usize]) -> (Vec<u8>, Next<Claim>) {
    let (mut said, mut next) = (Vec::new(), Next::Wait);
    let mut pieces = pieces.iter().cycle();
    while !bytes.is_empty() && matches!(next, Next::Wait) {
        let buffer = acceptance.buffer();
        let piece = (*pieces.next().expect("a cycle")).clamp(1, buffer.len());
        let count = piece.min(bytes.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        next = acceptance.advance(count, TOKEN, read);
        said.extend(acceptance.reply());
    }
    (said, next)
}

proptest! {
    #[test]
    fn a_member_is_welcomed_however_its_bytes_are_cut(
        claim in any::<[u8; 32]>(),
        pieces in prop::collection::vec(1_usize..64, 1..8),
    ) {
        let mut claimed = CLAIM;
        claimed[10..].copy_from_slice(&claim);
        let greeting = greeting(&claimed).unwrap();
        let mut acceptance = Acceptance::new();
        let (answer, next) = feed(&mut acceptance, &greeting, &pieces);
        prop_assert!(matches!(next, Next::Wait));
        let answer = answer.try_into().expect("an answer");
        let sign = |side| proof(side, TOKEN, &greeting, &answer).finalize().into_bytes();
        let (verdict, next) = feed(&mut acceptance, &sign(Side::Initiator), &pieces);
        prop_assert!(matches!(next, Next::Welcome(welcomed) if welcomed == claimed));
        prop_assert_eq!(&verdict[1..], &sign(Side::Acceptor)[..]);
        // The acceptor's own proof, sent back to it, is no proof of the other side.
        prop_assert_ne!(sign(Side::Initiator), sign(Side::Acceptor));
    }
}

#[test]
fn another_token_or_another_claim_is_no_proof() {
    let greeting = greeting(&CLAIM).unwrap();
    let mut other_claim = greeting;
    other_claim[MAGIC.len()] ^= 1;
    for (token, signed) in [(&b"another token"[..], greeting), (TOKEN, other_claim)] {
        let mut acceptance = Acceptance::new();
        let (answer, _) = feed(&mut acceptance, &greeting, &[usize::MAX]);
        let proof = proof(Side::Initiator, token, &signed, &answer.try_into().unwrap());
        let (verdict, next) = feed(&mut acceptance, &proof.finalize().into_bytes(), &[usize::MAX]);
        assert!(
            matches!(next, Next::Drop("it does not know the job's token")),
            "{next:?}"
        );
        assert_eq!(verdict, [0; VERDICT_BYTES]);
    }
}

#[test]
fn both_ends_name_another_version() {
    let mut older = greeting(&CLAIM).unwrap();
    older[7] = b'1';
    let (said, next) = feed(&mut Acceptance::new(), &older, &[usize::MAX]);
    assert!(
        matches!(next, Next::Drop("it speaks another version of this protocol")),
        "{next:?}"
    );
    assert_eq!(said, MAGIC);
    let error = check_magic(&older).unwrap_err().to_string();
    assert_eq!(
        error,
        "the other end speaks version '1' of the protocol, and this one '4'"
    );
    let (said, next) = feed(&mut Acceptance::new(), b"GET / HTTP/1.1\r\n", &[usize::MAX]);
    assert!(
        matches!(next, Next::Drop("it does not speak this protocol")),
        "{next:?}"
    );
    assert!(said.is_empty());
}

#[test]
fn a_claim_that_is_not_expected_is_not_answered() {
    let mut acceptance = Acceptance::<()>::new();
    let mut refuse = |bytes: &[u8]| {
        acceptance.buffer()[..bytes.len()].copy_from_slice(bytes);
        let next = acceptance.advance(bytes.len(), TOKEN, |_| Err("it is not expected"));
        assert!(acceptance.reply().is_empty());
        next
    };
    let greeting = greeting(&CLAIM).unwrap();
    assert!(matches!(refuse(&greeting[..8]), Next::Wait));
    assert!(matches!(refuse(&greeting[8..]), Next::Drop("it is not expected")));
}
