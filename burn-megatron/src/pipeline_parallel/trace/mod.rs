//! [`chrome_trace`]: what was recorded, in the trace event format of Chrome, which Perfetto reads.

use serde_json::{Map, Value, json};

use super::timeline::{Activity, TimelineEvent};

#[cfg(test)]
mod tests;

/// The track of what a rank computes.
const COMPUTE: usize = 0;
/// The first track of sends; further ones follow where several are under way.
const FIRST_SEND: usize = 1000;
/// The first track of receives.
const FIRST_RECEIVE: usize = 2000;

/// Returns the events of all ranks as one JSON object: a process per rank, named by `names`, with one thread for its
/// compute and further threads for sends and receives, one for each that is in flight at the same time.
///
/// Times are in microseconds since the timeline's zero.
///
/// # Panics
/// Unless there is a name per rank.
///
/// # Reference
/// Trace Event Format, "complete events" and "metadata events":
/// <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.
pub fn chrome_trace(ranks: &[Vec<TimelineEvent>], names: &[String]) -> Value {
    assert_eq!(ranks.len(), names.len(), "expected a name per rank");
    let mut all = Vec::new();
    for (rank, (events, name)) in ranks.iter().zip(names).enumerate() {
        all.push(metadata("process_name", rank, COMPUTE, json!({ "name": name })));
        all.push(metadata(
            "process_sort_index",
            rank,
            COMPUTE,
            json!({ "sort_index": rank }),
        ));
        let mut tracks = Tracks::default();
        let mut sorted: Vec<&TimelineEvent> = events.iter().collect();
        sorted.sort_by(|a, b| a.start.total_cmp(&b.start));
        for event in sorted {
            all.push(complete(event, rank, tracks.of(event)));
        }
        for (track, name) in tracks.names() {
            all.push(metadata("thread_name", rank, track, json!({ "name": name })));
            all.push(metadata(
                "thread_sort_index",
                rank,
                track,
                json!({ "sort_index": track }),
            ));
        }
    }
    json!({ "traceEvents": all, "displayTimeUnit": "ms" })
}

/// When the last event of each track of transfers ends: events of one track may not overlap.
#[derive(Default)]
struct Tracks {
    sends: Vec<f64>,
    receives: Vec<f64>,
}

impl Tracks {
    /// The track of an event that starts no earlier than all before.
    fn of(&mut self, event: &TimelineEvent) -> usize {
        let (ends, first) = match event.activity {
            Activity::Send => (&mut self.sends, FIRST_SEND),
            Activity::Receive => (&mut self.receives, FIRST_RECEIVE),
            _ => return COMPUTE,
        };
        let free = ends.iter().position(|&end| end <= event.start);
        let track = free.unwrap_or_else(|| {
            ends.push(event.end);
            ends.len() - 1
        });
        ends[track] = event.end;
        first + track
    }

    fn names(&self) -> Vec<(usize, String)> {
        let numbered = |first: usize, name: &'static str, count: usize| {
            (0..count).map(move |track| match track {
                0 => (first, name.to_owned()),
                _ => (first + track, format!("{name} {}", track + 1)),
            })
        };
        let sends = numbered(FIRST_SEND, "send", self.sends.len());
        let receives = numbered(FIRST_RECEIVE, "receive", self.receives.len());
        let compute = std::iter::once((COMPUTE, "compute".to_owned()));
        compute.chain(sends).chain(receives).collect()
    }
}

fn metadata(what: &str, rank: usize, track: usize, args: Value) -> Value {
    json!({ "ph": "M", "name": what, "pid": rank, "tid": track, "args": args })
}

fn complete(event: &TimelineEvent, rank: usize, track: usize) -> Value {
    let activity = event.activity.name();
    let name = match event.micro_batch {
        Some(micro_batch) => format!("{activity} {micro_batch}"),
        None => activity.to_owned(),
    };
    let mut args = Map::new();
    args.insert("step".to_owned(), json!(event.step));
    let numbers = [
        ("micro_batch", event.micro_batch),
        ("chunk", event.chunk),
        ("peer", event.peer),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            args.insert(key.to_owned(), json!(number));
        }
    }
    if let Some(direction) = event.direction {
        args.insert("direction".to_owned(), json!(direction));
    }
    json!({
        "ph": "X",
        "name": name,
        "cat": activity,
        "pid": rank,
        "tid": track,
        "ts": event.start * 1e6,
        "dur": (event.end - event.start) * 1e6,
        "args": args,
    })
}
