//! `Frame`: what ranks send each other.

use std::io::{self, Read, Write};

/// What a frame is for; with the sender and a sequence number it says which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// The first one: who it is.
    Hello = 1,
    /// A rank's part in a collective operation.
    Collective,
    /// A rank has come to a receive.
    Ready,
    /// What it receives.
    Data,
    /// A rank's part in a split of the communicator.
    Split,
    /// The last one of a rank that ends in order.
    Bye,
    /// A rank has come to the first operation that needs a connection.
    Connect,
}

/// What an operation is, as all ranks must call it; all zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Description {
    pub kind: u8,
    pub datatype: u8,
    pub reduction: u8,
    pub root: u32,
    pub count: u64,
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub purpose: Purpose,
    pub sequence: u64,
    pub description: Description,
    pub payload: Vec<u8>,
}

/// The bytes before the payload.
pub const HEADER: usize = 32;
/// The longest payload that is taken, in bytes.
const LONGEST: u64 = 1 << 30;

impl Frame {
    pub fn new(purpose: Purpose, sequence: u64, payload: Vec<u8>) -> Self {
        let description = Description::default();
        Self {
            purpose,
            sequence,
            description,
            payload,
        }
    }

    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        let mut header = [0; HEADER];
        header[0] = self.purpose as u8;
        header[1] = self.description.kind;
        header[2] = self.description.datatype;
        header[3] = self.description.reduction;
        header[4..8].copy_from_slice(&self.description.root.to_le_bytes());
        header[8..16].copy_from_slice(&self.description.count.to_le_bytes());
        header[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        header[24..32].copy_from_slice(&(self.payload.len() as u64).to_le_bytes());
        to.write_all(&header)?;
        to.write_all(&self.payload)
    }

    pub fn read(mut from: impl Read) -> io::Result<Self> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let purpose = match header[0] {
            1 => Purpose::Hello,
            2 => Purpose::Collective,
            3 => Purpose::Ready,
            4 => Purpose::Data,
            5 => Purpose::Split,
            6 => Purpose::Bye,
            7 => Purpose::Connect,
            other => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a frame for {other}"),
                ));
            }
        };
        let bytes = number(24);
        if bytes > LONGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a frame of {bytes} bytes"),
            ));
        }
        let mut payload = Vec::new();
        let enough = payload.try_reserve_exact(bytes as usize);
        enough.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        payload.resize(bytes as usize, 0);
        from.read_exact(&mut payload)?;
        Ok(Self {
            purpose,
            sequence: number(16),
            description: Description {
                kind: header[1],
                datatype: header[2],
                reduction: header[3],
                root: u32::from_le_bytes(std::array::from_fn(|byte| header[4 + byte])),
                count: number(8),
            },
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_as_they_were_sent() {
        let description = Description {
            kind: 1,
            datatype: 2,
            reduction: 3,
            root: 4,
            count: 1 << 40,
        };
        let sent = Frame {
            description,
            ..Frame::new(Purpose::Data, 1 << 33, vec![1, 2, 3])
        };
        let mut bytes = Vec::new();
        sent.write(&mut bytes).unwrap();
        let came = Frame::read(&bytes[..]).unwrap();
        assert_eq!(
            (came.purpose, came.sequence, came.payload),
            (sent.purpose, sent.sequence, sent.payload)
        );
        assert_eq!(came.description, description);
    }

    #[test]
    fn too_long_frames_are_refused_before_memory_is_taken() {
        let mut bytes = Vec::new();
        Frame::new(Purpose::Data, 0, Vec::new()).write(&mut bytes).unwrap();
        bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Frame::read(&bytes[..]).is_err());
    }
}
