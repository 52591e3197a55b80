//! [`RankClaim`]: which connection of a group a rank makes.

use crate::launch::Claim;

/// First byte of such a claim.
const BETWEEN_RANKS: u8 = 1;

/// What a rank says of a connection that it makes to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct RankClaim {
    /// The digest of the group.
    pub group: [u8; 32],
    /// Group index of the rank that connects.
    pub from: u32,
    /// Group index of the rank that accepts.
    pub to: u32,
    /// Which of the connections between the two this is to be.
    pub channel: u8,
}

impl RankClaim {
    /// Returns the claim as it travels.
    pub fn to_bytes(self) -> Claim {
        let numbers = [self.from.to_le_bytes(), self.to.to_le_bytes()].concat();
        let bytes = [&[BETWEEN_RANKS], &self.group[..], &numbers, &[self.channel]].concat();
        bytes.try_into().expect("1 + 32 + 2 * 4 + 1 bytes")
    }

    /// Reads the claim; `None` when it is for something else.
    pub fn from_bytes(bytes: &Claim) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (group, rest) = rest.split_first_chunk()?;
        let (from, rest) = rest.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let claim = Self {
            group: *group,
            from: u32::from_le_bytes(*from),
            to: u32::from_le_bytes(*to),
            channel: *rest.first()?,
        };
        (*kind == BETWEEN_RANKS).then_some(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_one_encoding_and_no_other_kind_is_taken_for_it() {
        let bytes: Claim = std::array::from_fn(|index| index as u8 + 1);
        let claim = RankClaim::from_bytes(&bytes).unwrap();
        assert_eq!((claim.from, claim.to, claim.channel), (0x2524_2322, 0x2928_2726, 42));
        assert_eq!(claim.to_bytes(), bytes);
        assert_eq!(RankClaim::from_bytes(&[0; 42]), None);
    }
}
