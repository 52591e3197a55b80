//! [`Merger`]: lines of several ranks, those that are equal as one.
//!
//! A line waits for a moment, so that the other ranks can say the same. The lines of a rank stay in order: what a line
//! is joined with is the other ranks' next ones.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::ranks::RankSet;

/// Most bytes that wait.
const MAX_HELD_BYTES: usize = 1 << 20;
/// What a line takes in addition to its text.
const HELD_BYTES_PER_LINE: usize = size_of::<Line>();

/// How a rank that ends because of another says what it met itself.
const HERE: &[u8] = b" (here: ";

/// Lines of ranks that wait to be written.
pub(super) struct Merger {
    /// How many ranks write: of a line that all have written, no other is awaited.
    ranks: usize,
    hold: Duration,
    held: BTreeMap<usize, VecDeque<Line>>,
    held_bytes: usize,
    arrived: u64,
}

/// A line that waits.
struct Line {
    /// Its number, of all lines.
    arrival: u64,
    due: Instant,
    bytes: Vec<u8>,
    /// What is compared of the line.
    compared: Range<usize>,
    /// The host, in a line that begins with its own rank and host.
    host: Option<String>,
}

impl Merger {
    /// Returns a merger for this number of ranks, whose lines wait for at most `hold`.
    pub(super) fn new(ranks: usize, hold: Duration) -> Self {
        Self {
            ranks,
            hold,
            held: BTreeMap::new(),
            held_bytes: 0,
            arrived: 0,
        }
    }

    /// Takes a rank's next line, without its end.
    pub(super) fn push(&mut self, rank: usize, line: Vec<u8>, now: Instant) {
        self.held_bytes += HELD_BYTES_PER_LINE + line.len();
        self.arrived += 1;
        let line = Line::new(rank, line, self.arrived, now + self.hold);
        self.held.entry(rank).or_default().push_back(line);
    }

    /// Returns when the next line has waited long enough; `None` if none waits.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.heads().map(|(_, line)| line.due).min()
    }

    /// Returns the lines that wait no longer, each with who wrote it.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<u8> {
        self.take(|line| line.due <= now)
    }

    /// Returns all lines.
    pub(super) fn take_all(&mut self) -> Vec<u8> {
        self.take(|_| true)
    }

    fn take(&mut self, is_due: impl Fn(&Line) -> bool) -> Vec<u8> {
        let mut text = Vec::new();
        while let Some((first, oldest)) = self.heads().min_by_key(|(_, line)| line.arrival) {
            let equal: Vec<usize> = self
                .heads()
                .filter(|(_, line)| line.equals(oldest))
                .map(|(rank, _)| rank)
                .collect();
            if !is_due(oldest) && equal.len() < self.ranks && self.held_bytes <= MAX_HELD_BYTES {
                break;
            }
            let is_elsewhere = |line: &Line| line.equals(oldest) && line.here() != oldest.here();
            let are_elsewhere = self.heads().any(|(_, line)| is_elsewhere(line));
            oldest.write(&equal, are_elsewhere.then_some(first), &mut text);
            for rank in equal {
                self.drop_head(rank);
            }
        }
        text
    }

    /// Each rank's next line.
    fn heads(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.held
            .iter()
            .filter_map(|(&rank, lines)| Some((rank, lines.front()?)))
    }

    fn drop_head(&mut self, rank: usize) {
        let line = self.held.get_mut(&rank).and_then(VecDeque::pop_front);
        self.held_bytes -= line.map_or(0, |line| HELD_BYTES_PER_LINE + line.bytes.len());
    }
}

impl Line {
    fn new(rank: usize, bytes: Vec<u8>, arrival: u64, due: Instant) -> Self {
        let own = own_place(rank, &bytes).map(|(host, length)| (host.to_owned(), length));
        let (host, compared) = match own {
            Some((host, length)) => (Some(host), length..here_of(&bytes)),
            None => (None, time_length(&bytes)..bytes.len()),
        };
        Self {
            arrival,
            due,
            bytes,
            compared,
            host,
        }
    }

    fn equals(&self, other: &Self) -> bool {
        self.host == other.host && self.bytes[self.compared.clone()] == other.bytes[other.compared.clone()]
    }

    /// What the rank says of itself at the end, ` (here: …)`; nothing in most lines.
    fn here(&self) -> &[u8] {
        &self.bytes[self.compared.end..]
    }

    /// Writes the line as that of `ranks`; with what only `alone` says of itself, if the others say something else.
    fn write(&self, ranks: &[usize], alone: Option<usize>, text: &mut Vec<u8>) {
        let ranks = ranks.iter().collect::<RankSet>().named();
        match &self.host {
            Some(host) => {
                text.extend(format!("[{ranks} on host {host}] ").bytes());
                text.extend(&self.bytes[self.compared.clone()]);
            }
            None => {
                text.extend(format!("[{ranks}] ").bytes());
                text.extend(&self.bytes[..self.compared.end]);
            }
        }
        match alone {
            Some(rank) => {
                let here = self.here().strip_prefix(HERE).unwrap_or_default();
                text.extend(format!(" (rank {rank} here: ").bytes());
                text.extend(here.strip_suffix(b")").unwrap_or(here));
                text.extend(b"; the others in other calls)");
            }
            None => text.extend(self.here()),
        }
        text.push(b'\n');
    }
}

/// The host in `[rank 3 on host a] ` at the beginning of rank 3's line, and how long that is.
fn own_place(rank: usize, line: &[u8]) -> Option<(&str, usize)> {
    let start = format!("[rank {rank} on host ");
    let rest = line.strip_prefix(start.as_bytes())?;
    let length = rest.iter().position(|&byte| byte == b']')?;
    let host = str::from_utf8(&rest[..length]).ok()?;
    let end = start.len() + length + 1;
    (line.get(end) == Some(&b' ')).then_some((host, end + 1))
}

/// Where a line that begins with its own rank and host says what that rank met itself; its end if it does not.
fn here_of(line: &[u8]) -> usize {
    let found = line.windows(HERE.len()).position(|part| part == HERE);
    found.filter(|_| line.ends_with(b")")).unwrap_or(line.len())
}

/// How long the time is with which a line of a log begins, such as `2026-11-27T06:51:41.123456Z`; 0 if it does not.
fn time_length(line: &[u8]) -> usize {
    let date = b"dddd-dd-ddTdd:dd:dd";
    let is_like = |(byte, form): (&u8, &u8)| {
        if *form == b'd' {
            byte.is_ascii_digit()
        } else {
            byte == form
        }
    };
    if line.len() < date.len() || !line.iter().zip(date).all(is_like) {
        return 0;
    }
    let fraction = line[date.len()..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
    let end = date.len() + fraction.count();
    if line.get(end) == Some(&b'Z') { end + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOLD: Duration = Duration::from_millis(200);

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    fn merged(ranks: usize, lines: &[(usize, &str)]) -> String {
        let mut merger = Merger::new(ranks, HOLD);
        for (rank, line) in lines {
            merger.push(*rank, line.as_bytes().to_vec(), Instant::now());
        }
        text(merger.take_all())
    }

    #[test]
    fn equal_lines_become_one() {
        let lines = [(2, "a"), (0, "b"), (1, "a"), (0, "a"), (2, "c"), (1, "c")];
        assert_eq!(
            merged(4, &lines),
            "[ranks 1, 2] a\n[rank 0] b\n[rank 0] a\n[ranks 1, 2] c\n",
            "rank 0 said b first"
        );
    }

    #[test]
    fn times_and_the_ranks_own_places_are_no_difference() {
        let lines = [
            (0, "2026-11-27T06:51:41.123456Z  WARN slow"),
            (1, "2026-11-27T06:51:42Z  WARN slow"),
            (0, "[rank 0 on host a] ends because rank 2 is dead"),
            (1, "[rank 1 on host a] ends because rank 2 is dead"),
            (3, "[rank 0 on host a] ends because rank 2 is dead"),
        ];
        assert_eq!(
            merged(4, &lines),
            "[ranks 0, 1] 2026-11-27T06:51:41.123456Z  WARN slow\n\
             [ranks 0, 1 on host a] ends because rank 2 is dead\n\
             [rank 3] [rank 0 on host a] ends because rank 2 is dead\n"
        );
    }

    #[test]
    fn ranks_that_end_because_of_another_are_one_line() {
        let lines = [
            (
                4,
                "[rank 4 on host a] ends because rank 2 is dead (here: send to rank 5 stopped)",
            ),
            (
                0,
                "[rank 0 on host a] ends because rank 2 is dead (here: barrier stopped)",
            ),
            (
                1,
                "[rank 1 on host a] ends because rank 2 is dead (here: barrier stopped)",
            ),
        ];
        assert_eq!(
            merged(5, &lines),
            "[ranks 0, 1, 4 on host a] ends because rank 2 is dead (rank 4 here: send to rank 5 stopped; the others in \
             other calls)\n"
        );
        assert_eq!(
            merged(5, &lines[1..]),
            "[ranks 0, 1 on host a] ends because rank 2 is dead (here: barrier stopped)\n"
        );
        assert_eq!(merged(5, &lines[..1]), format!("{}\n", lines[0].1));
    }

    #[test]
    fn a_line_waits_for_the_others_and_not_for_long() {
        let start = Instant::now();
        let mut merger = Merger::new(3, HOLD);
        merger.push(0, b"a".to_vec(), start);
        assert_eq!(text(merger.take_due(start)), "");
        assert_eq!(merger.next_due(), Some(start + HOLD));
        merger.push(1, b"a".to_vec(), start + HOLD / 2);
        merger.push(1, b"b".to_vec(), start + HOLD / 2);
        assert_eq!(text(merger.take_due(start + HOLD)), "[ranks 0, 1] a\n");
        assert_eq!(text(merger.take_due(start + HOLD)), "");
        // All have said it: there is no other to wait for.
        merger.push(0, b"b".to_vec(), start + HOLD);
        merger.push(2, b"b".to_vec(), start + HOLD);
        assert_eq!(text(merger.take_due(start + HOLD)), "[ranks 0-2] b\n");
        assert_eq!(merger.next_due(), None);
        // Much that waits is written.
        merger.push(0, vec![b'x'; MAX_HELD_BYTES + 1], start);
        assert_eq!(merger.take_due(start).len(), "[rank 0] \n".len() + MAX_HELD_BYTES + 1);
        assert_eq!(merger.held_bytes, 0);
    }

    proptest! {
        /// Whatever is merged, each rank's lines are all there, in its order.
        #[test]
        fn every_rank_keeps_its_lines(pushed in prop::collection::vec((0..4_usize, 0..3_u8), 0..40)) {
            let start = Instant::now();
            let mut merger = Merger::new(4, HOLD);
            let mut written = String::new();
            for (step, (rank, line)) in pushed.iter().enumerate() {
                let now = start + HOLD / 4 * step as u32;
                merger.push(*rank, format!("line {line}").into_bytes(), now);
                written += &text(merger.take_due(now));
            }
            written += &text(merger.take_all());
            for rank in 0..4 {
                let of_rank = pushed.iter().filter(|pushed| pushed.0 == rank);
                let expected: Vec<String> = of_rank.map(|(_, line)| format!("line {line}")).collect();
                let said = written.lines().map(|line| line.split_once("] ").expect("a place"));
                let said = said.filter(|(place, _)| {
                    let ranks = place.trim_start_matches("[ranks ").trim_start_matches("[rank ");
                    ranks.parse::<RankSet>().expect("ranks").contains(rank)
                });
                let found: Vec<&str> = said.map(|(_, line)| line).collect();
                prop_assert_eq!(&found, &expected, "rank {}: {}", rank, written);
            }
        }
    }
}
