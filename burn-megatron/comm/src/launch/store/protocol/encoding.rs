//! How fields are written and read where serde's own way knows no limit.
//!
//! What is longer than its limit is cut where its end may be lost, refused where it may not. A reader takes a message
//! only if it would write the same number of bytes itself: so no field is beyond its limit, and a message has one
//! encoding.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{MAX_KEY_BYTES, MAX_PROGRESS_BYTES, MAX_TEXT_BYTES, MAX_VALUE_BYTES, Malformed};
use crate::launch::peer_failure::PeerFailure;
use crate::limits::MAX_WORLD_SIZE;

/// Reads a message that is the whole of `body`. It takes no more memory than a small multiple of the body.
pub(super) fn decode<T: DeserializeOwned + Serialize>(body: &[u8]) -> Result<T, Malformed> {
    use postcard::Error;
    let (message, rest) = postcard::take_from_bytes(body).map_err(|error| {
        Malformed(match error {
            Error::DeserializeUnexpectedEnd => "a field is cut short",
            Error::DeserializeBadVarint => "a number is too large",
            Error::DeserializeBadUtf8 => "a text is not UTF-8",
            _ => "unknown kind of message, or a list that is cut short or too long",
        })
    })?;
    if !rest.is_empty() {
        return Err(Malformed("bytes follow the last field"));
    }
    if postcard::experimental::serialized_size(&message) != Ok(body.len()) {
        return Err(Malformed("a field is longer than its limit, or a number than it needs"));
    }
    Ok(message)
}

/// A text, cut at the limit: reasons may lose their end.
pub(super) fn text<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(cut(text, MAX_TEXT_BYTES))
}

/// A text, cut at the limit of a heartbeat's.
pub(super) fn progress<S: Serializer>(progress: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(cut(progress, MAX_PROGRESS_BYTES))
}

/// A failure, its texts cut at the limit.
pub(super) fn failure<S: Serializer>(failure: &PeerFailure, serializer: S) -> Result<S::Ok, S::Error> {
    let PeerFailure { rank, host, what } = failure;
    (rank, cut(host, MAX_TEXT_BYTES), cut(what, MAX_TEXT_BYTES)).serialize(serializer)
}

/// A key, which was checked before.
pub(super) fn key<S: Serializer>(key: &str, serializer: S) -> Result<S::Ok, S::Error> {
    if key.len() > MAX_KEY_BYTES {
        return Err(S::Error::custom("the key is too long"));
    }
    serializer.serialize_str(key)
}

fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Elements that room is made for before any has been read.
const FIRST_ELEMENTS: usize = 1024;

/// A list of at most one element per rank. Room is made as elements are read.
pub(super) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "a list of at most {MAX_WORLD_SIZE} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            // None if the bytes at hand are fewer.
            let count = elements.size_hint().filter(|count| *count <= MAX_WORLD_SIZE);
            let count = count.ok_or_else(|| A::Error::invalid_length(0, &self))?;
            let mut list = Vec::with_capacity(count.min(FIRST_ELEMENTS));
            while let Some(element) = elements.next_element()? {
                list.push(element);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(List(PhantomData))
}

/// A value: bytes in one piece.
pub(super) mod bytes {
    use super::*;

    pub(in super::super) fn serialize<T: AsRef<[u8]>, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let value = value.as_ref();
        if value.len() > MAX_VALUE_BYTES {
            return Err(S::Error::custom("the value is too long"));
        }
        serializer.serialize_bytes(value)
    }

    pub(in super::super) fn deserialize<'de, T: From<&'de [u8]>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        <&[u8]>::deserialize(deserializer).map(T::from)
    }
}

/// Milliseconds: whole, rounded up, so that a short timeout never becomes none.
pub(super) mod millis {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        serializer.serialize_u64(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
