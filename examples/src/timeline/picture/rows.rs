//! What a recording shows: for each rank or stage a row of coloured blocks, and the colours' legend.

use burn_megatron::pipeline_parallel::schedule::Pass;
use burn_megatron::pipeline_parallel::{Activity, TimelineEvent};
use plotters::style::RGBColor;

use crate::timeline::recording::Recording;

const FORWARD: RGBColor = RGBColor(0, 114, 178);
const BACKWARD: RGBColor = RGBColor(213, 94, 0);
const WAIT: RGBColor = RGBColor(222, 222, 226);
const REDUCTION: RGBColor = RGBColor(150, 90, 160);
const OPTIMIZER: RGBColor = RGBColor(0, 140, 100);
const SEND: RGBColor = RGBColor(86, 180, 233);
const RECEIVE: RGBColor = RGBColor(230, 159, 0);

/// Something that fills a stretch of time of a row.
pub(super) struct Block {
    pub color: RGBColor,
    /// Written inside, where it fits.
    pub number: Option<usize>,
    pub start_secs: f64,
    pub end_secs: f64,
}

/// What one rank or stage does.
pub(super) struct Row {
    pub name: String,
    pub computed: Vec<Block>,
    /// None where transfers are not drawn.
    pub transfers: Option<[Vec<Block>; 2]>,
}

pub(super) fn measured_rows(recording: &Recording) -> Vec<Row> {
    let num_chunks = recording.schedule().num_chunks;
    let block = |event: &TimelineEvent| Block {
        color: color(event.activity, event.chunk.unwrap_or(0), num_chunks),
        number: match event.activity {
            Activity::Forward | Activity::Backward => event.micro_batch,
            _ => None,
        },
        start_secs: event.start,
        end_secs: event.end,
    };
    let only = |events: &[TimelineEvent], activity: Activity| -> Vec<Block> {
        let events = events.iter().filter(|event| event.activity == activity);
        events.map(block).collect()
    };
    let has_transfers = recording.schedule().num_stages() > 1;
    let rows = recording.ranks().iter().enumerate().map(|(rank, events)| Row {
        name: recording.rank_name(rank),
        computed: events
            .iter()
            .filter(|event| !event.activity.is_transfer())
            .map(block)
            .collect(),
        transfers: has_transfers.then(|| [only(events, Activity::Send), only(events, Activity::Receive)]),
    });
    rows.collect()
}

/// The simulated step, from the moment at which the first measured one began.
pub(super) fn simulated_rows(recording: &Recording) -> Vec<Row> {
    let start = recording.profile().start_secs();
    let end = start + recording.simulation().makespan_secs();
    let num_chunks = recording.schedule().num_chunks;
    let rows = recording.simulation().stages.iter().enumerate().map(|(stage, spans)| {
        let mut computed = Vec::new();
        let mut now = start;
        let wait = |from: f64, to: f64| {
            (to - from > 1e-9).then_some(Block {
                color: WAIT,
                number: None,
                start_secs: from,
                end_secs: to,
            })
        };
        for span in spans {
            let activity = match span.pass {
                Pass::Forward => Activity::Forward,
                Pass::Backward => Activity::Backward,
            };
            computed.extend(wait(now, start + span.start_secs));
            now = start + span.end_secs;
            computed.push(Block {
                color: color(activity, span.task.chunk, num_chunks),
                number: Some(span.task.micro_batch),
                start_secs: start + span.start_secs,
                end_secs: now,
            });
        }
        computed.extend(wait(now, end));
        Row {
            name: format!("stage {stage}"),
            computed,
            transfers: None,
        }
    });
    rows.collect()
}

fn color(activity: Activity, chunk: usize, num_chunks: usize) -> RGBColor {
    match activity {
        Activity::Forward => shade(FORWARD, chunk, num_chunks),
        Activity::Backward => shade(BACKWARD, chunk, num_chunks),
        Activity::Wait => WAIT,
        Activity::Reduction => REDUCTION,
        Activity::Optimizer => OPTIMIZER,
        Activity::Send => SEND,
        Activity::Receive => RECEIVE,
    }
}

/// A colour as it is for the first chunk, and paler for later ones.
fn shade(RGBColor(red, green, blue): RGBColor, chunk: usize, num_chunks: usize) -> RGBColor {
    let white = 0.65 * chunk as f64 / num_chunks.max(2).saturating_sub(1) as f64;
    let mix = |part: u8| (f64::from(part) + (255.0 - f64::from(part)) * white).round() as u8;
    RGBColor(mix(red), mix(green), mix(blue))
}

pub(super) fn legend(num_chunks: usize) -> Vec<(String, RGBColor)> {
    let passes = [Activity::Forward, Activity::Backward]
        .into_iter()
        .flat_map(|activity| {
            (0..num_chunks).map(move |chunk| {
                let name = match num_chunks {
                    1 => activity.name().to_owned(),
                    _ => format!("{}, chunk {chunk}", activity.name()),
                };
                (name, color(activity, chunk, num_chunks))
            })
        });
    let others = Activity::ALL.into_iter().skip(2);
    let others = others.map(|activity| (activity.name().to_owned(), color(activity, 0, 1)));
    passes.chain(others).collect()
}
