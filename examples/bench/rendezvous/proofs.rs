//! What the proofs of a handshake cost, measured by themselves.

use std::hint::black_box;
use std::time::Instant;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// HMACs of a handshake: each end makes its proof and checks the other's.
pub const PROOFS: f64 = 4.0;

/// Bytes that are signed: the name of the side, and the first messages of both (see the handshake of
/// burn-megatron-comm).
const SIGNED_BYTES: usize = 9 + 82 + 40;
/// Of a token that the launcher made.
const TOKEN_BYTES: usize = 64;
/// Proofs that are timed together, and how often: the fastest counts, which other programs have interrupted least.
const TIMED: u32 = 1_000;
const ROUNDS: u32 = 50;

/// Returns the time of one HMAC-SHA256 of a handshake's length.
pub fn seconds_of_one() -> f64 {
    let (token, signed) = ([7; TOKEN_BYTES], [9; SIGNED_BYTES]);
    let prove = || {
        let hmac = Hmac::<Sha256>::new_from_slice(black_box(&token)).expect("HMAC takes keys of any length");
        black_box(hmac.chain_update(black_box(&signed)).finalize());
    };
    let time = |_| {
        let begun = Instant::now();
        (0..TIMED).for_each(|_| prove());
        begun.elapsed().as_secs_f64() / f64::from(TIMED)
    };
    (0..ROUNDS).map(time).fold(f64::INFINITY, f64::min)
}
