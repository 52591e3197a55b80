//! Philox4x32-10, the counter-based generator of initialisation and dropout.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Returns four random words for a counter under a key.
///
/// Ten rounds; each multiplies two of the counter's words by constants, crosses the halves and mixes in the key,
/// which advances by a constant a round.
///
/// # Reference
/// Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
#[inline(always)]
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            key[0] = key[0].wrapping_add(KEY_STEPS[0]);
            key[1] = key[1].wrapping_add(KEY_STEPS[1]);
        }
        let product_0 = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let product_1 = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (product_1 >> 32) as u32 ^ counter[1] ^ key[0],
            product_1 as u32,
            (product_0 >> 32) as u32 ^ counter[3] ^ key[1],
            product_0 as u32,
        ];
    }
    counter
}

/// Splits a 64-bit key into the generator's two words, low word first.
pub fn key_words(key: u64) -> [u32; 2] {
    [key as u32, (key >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors publish with Random123 (`kat_vectors`, philox4x32 10).
    #[test]
    fn known_answers() {
        assert_eq!(
            philox4x32_10([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32_10([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
