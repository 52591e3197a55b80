//! Event files are decoded here with a checksum that is computed bit by bit; the fixture, which has every field, was
//! written by the real tensorboard package.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::scalars::Scalar;

/// By `tests/tensorboard/write_fixture.py` of this crate, with tensorboard 2.21.0 and protobuf 7.36.2.
const FIXTURE: &[u8] = include_bytes!("../../tests/tensorboard/fixtures/events");

/// CRC-32C by its definition: the remainder of a division by the reflected polynomial 0x82f63b78.
fn crc_bit_by_bit(bytes: &[u8]) -> u32 {
    let remainder = bytes.iter().fold(u32::MAX, |remainder, byte| {
        (0..8).fold(remainder ^ u32::from(*byte), |remainder, _| {
            let divides = remainder & 1 == 1;
            (remainder >> 1) ^ if divides { 0x82f6_3b78 } else { 0 }
        })
    });
    !remainder
}

fn masked_bit_by_bit(bytes: &[u8]) -> u32 {
    let crc = crc_bit_by_bit(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The data of each record, whose checksums must be right.
fn data_of_records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at(8);
        let (length_crc, rest) = rest.split_at(4);
        assert_eq!(masked_bit_by_bit(length).to_le_bytes(), length_crc);
        let (data, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (data_crc, rest) = rest.split_at(4);
        assert_eq!(masked_bit_by_bit(data).to_le_bytes(), data_crc);
        records.push(data);
        bytes = rest;
    }
    records
}

fn events_of(bytes: &[u8]) -> Vec<messages::Event> {
    let decode = |data| messages::Event::decode(data).unwrap();
    data_of_records(bytes).into_iter().map(decode).collect()
}

fn scalar_events(step: i64, scalars: &[(&str, f64)]) -> Event {
    let value = |(tag, value): &(&str, f64)| ((*tag).to_owned(), Value::Scalar(*value));
    Event::Values {
        step,
        values: scalars.iter().map(value).collect(),
    }
}

/// What the fixture holds, with the time of each.
fn events_of_the_fixture() -> Vec<(f64, Event)> {
    let text = Value::Text("Once upon a time, Grüße, 𝄞.".to_owned());
    // Two ranges between 1 and 4: up to 2.5, and above.
    let histogram = Histogram::of(&[1.0, 2.0, 3.0, 4.0], 2).unwrap();
    let one = |step, tag: &str, value| Event::Values {
        step,
        values: vec![(tag.to_owned(), value)],
    };
    vec![
        (1700000000.25, Event::Version),
        (
            1700000002.0,
            scalar_events(
                3,
                &[
                    ("lm loss", 2.5),
                    ("learning-rate", 1.5e-4),
                    ("zero", 0.0),
                    ("nan", f64::NAN),
                    ("inf", f64::INFINITY),
                ],
            ),
        ),
        (1700000003.0, scalar_events(0, &[("lm loss vs samples", -1.25)])),
        (1700000004.0, scalar_events(1 << 40, &[("batch-size vs samples", 16.0)])),
        (1700000005.0, one(4, "samples", text)),
        (1700000006.0, one(5, "lengths", Value::Histogram(histogram))),
    ]
}

#[test]
fn checksums_are_those_of_the_standard() {
    // RFC 3720, appendix B.4: 32 bytes each.
    for (bytes, crc) in [
        ([0x00; 32], 0x8a91_36aa),
        ([0xff; 32], 0x62a8_ab43),
        (std::array::from_fn(|index| index as u8), 0x46dd_794e),
        (std::array::from_fn(|index| 31 - index as u8), 0x113f_db5c),
    ] {
        assert_eq!(crc_bit_by_bit(&bytes), crc);
        assert_eq!(record::masked_crc(&bytes), masked_bit_by_bit(&bytes));
    }
    assert_eq!(crc_bit_by_bit(b"123456789"), 0xe306_9283);
}

#[test]
fn what_is_written_has_the_bytes_of_the_real_tensorboard() {
    let mut bytes = Vec::new();
    for (seconds, event) in events_of_the_fixture() {
        record::append(&mut bytes, &event.encode(seconds));
    }
    let (ours, theirs) = (events_of(&bytes), events_of(FIXTURE));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        // A NaN is not equal to itself.
        assert_eq!(ours.encode_to_vec(), theirs.encode_to_vec());
    }
    assert_eq!(bytes, FIXTURE);
}

#[test]
fn a_changed_byte_is_noticed_by_the_checksums() {
    for index in 0..FIXTURE.len() {
        let mut bytes = FIXTURE.to_vec();
        bytes[index] ^= 0x10;
        let read = std::panic::catch_unwind(|| data_of_records(&bytes).len());
        assert!(read.is_err(), "byte {index}");
    }
}

proptest! {
    #[test]
    fn any_events_are_read_back(
        steps in prop::collection::vec(any::<i64>(), 1..8),
        tag in "\\PC{0,40}",
        value in any::<f32>(),
        text in "\\PC{0,300}",
        seconds in 0.0..4e9,
    ) {
        let mut bytes = Vec::new();
        for step in &steps {
            let values = vec![(tag.clone(), Value::Scalar(f64::from(value))), (tag.clone(), Value::Text(text.clone()))];
            record::append(&mut bytes, &Event::Values { step: *step, values }.encode(seconds));
        }
        let events = events_of(&bytes);
        prop_assert_eq!(events.len(), steps.len());
        for (event, step) in events.iter().zip(&steps) {
            prop_assert_eq!(event.wall_time, seconds);
            prop_assert_eq!(event.step, *step);
            let Some(messages::What::Summary(summary)) = &event.what else {
                return Err(TestCaseError::fail("no summary"));
            };
            let [scalar, written] = &summary.value[..] else {
                return Err(TestCaseError::fail("not two values"));
            };
            prop_assert_eq!(scalar.tag(), &tag);
            let Some(messages::Kind::Simple(read)) = scalar.kind else {
                return Err(TestCaseError::fail("no scalar"));
            };
            prop_assert_eq!(read.to_bits(), value.to_bits());
            let Some(messages::Kind::Tensor(tensor)) = &written.kind else {
                return Err(TestCaseError::fail("no text"));
            };
            prop_assert_eq!(&tensor.strings[0], text.as_bytes());
        }
    }

    #[test]
    fn checksums_are_those_of_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(record::masked_crc(&bytes), masked_bit_by_bit(&bytes));
    }

    #[test]
    fn a_histogram_counts_every_finite_value(
        values in prop::collection::vec(
            prop_oneof![-1e300_f64..1e300, Just(f64::NAN), Just(f64::INFINITY), -1.0..1.0],
            0..50,
        ),
        ranges in 0_usize..40,
    ) {
        let finite: Vec<f64> = values.iter().copied().filter(|value: &f64| value.is_finite()).collect();
        let Some(histogram) = Histogram::of(&values, ranges) else {
            prop_assert!(finite.is_empty());
            return Ok(());
        };
        let read = messages::Histogram::decode(&histogram.0.encode_to_vec()[..]).unwrap();
        prop_assert_eq!(read.num, finite.len() as f64);
        prop_assert_eq!(read.counts.iter().sum::<f64>(), finite.len() as f64);
        prop_assert!(read.limits.is_sorted());
        prop_assert_eq!(read.limits.last(), Some(&read.max()));
        // By counting, for each range.
        let mut lower = f64::NEG_INFINITY;
        for (limit, count) in read.limits.iter().zip(&read.counts) {
            let inside = finite.iter().filter(|value| lower < **value && **value <= *limit).count();
            prop_assert_eq!(*count, inside as f64);
            lower = *limit;
        }
    }
}

#[test]
fn a_file_is_named_as_tensorboard_expects_and_no_other_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("runs/first");
    let paths: Vec<PathBuf> = (0..3)
        .map(|_| EventFile::create(&logs).unwrap().path().to_owned())
        .collect();
    for (number, path) in paths.iter().enumerate() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let parts: Vec<&str> = name.strip_prefix("events.out.tfevents.").unwrap().split('.').collect();
        assert!(
            parts[0].len() == 10 && parts[0].parse::<u64>().unwrap() > 1_700_000_000,
            "{name}"
        );
        assert_eq!(parts[parts.len() - 2], std::process::id().to_string());
        assert!(!paths[..number].contains(path));
        let events = events_of(&fs::read(path).unwrap());
        assert_eq!(
            events[0].what,
            Some(messages::What::FileVersion("brain.Event:2".to_owned()))
        );
    }
    let error = EventFile::create(&paths[0]).unwrap_err().to_string();
    assert!(error.contains(&paths[0].display().to_string()), "{error}");
}

fn scalar(value: f64, step: u64) -> Scalar {
    Scalar {
        tag: "lm loss".into(),
        value,
        step,
    }
}

/// Waits until a file holds a number of events.
fn wait_for(path: &std::path::Path, count: usize) -> Vec<messages::Event> {
    let started = Instant::now();
    loop {
        let events = events_of(&fs::read(path).unwrap());
        if events.len() >= count {
            return events;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "only {events:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn events_are_seen_after_the_interval_and_all_of_them_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let soon = SummaryWriterConfig {
        flush_interval: Duration::from_millis(20),
        ..SummaryWriterConfig::default()
    };
    let mut writer = SummaryWriter::create(folder.path(), soon).unwrap();
    writer.scalars(&[scalar(1.5, 1), scalar(2.5, 1), scalar(1.5, 16)]);
    let events = wait_for(writer.path(), 3);
    // One event for each step.
    assert_eq!(events[1..].iter().map(|event| event.step).collect::<Vec<_>>(), [1, 16]);

    let never = SummaryWriterConfig {
        flush_interval: Duration::from_secs(3600),
        ..SummaryWriterConfig::default()
    };
    let mut writer = SummaryWriter::create(folder.path(), never).unwrap();
    let path = writer.path().to_owned();
    for step in 8..100 {
        writer.scalars(&[scalar(f64::from(u32::try_from(step).unwrap()), step)]);
    }
    writer.text("sample", &verbatim("fn *main*() {\n\n# ä"), 99);
    drop(writer);
    let events = events_of(&fs::read(path).unwrap());
    assert_eq!(events.len(), 1 + 92 + 1);
    assert_eq!(events[1].step, 8);
    let Some(messages::What::Summary(summary)) = &events[93].what else {
        panic!("{:?}", events[93]);
    };
    assert_eq!((events[93].step, summary.value[0].tag()), (99, "sample/text_summary"));
    let plugin = summary.value[0]
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.plugin.as_ref());
    assert_eq!(plugin.map(|plugin| plugin.name.as_str()), Some("text"));
    let Some(messages::Kind::Tensor(tensor)) = &summary.value[0].kind else {
        panic!("{summary:?}");
    };
    assert_eq!(tensor.strings, ["    fn *main*() {\n    \n    # ä".as_bytes()]);
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{}={value:?} ", field.name()));
            }
        }
        let mut text = Text(format!("{} ", event.metadata().level()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_full_disk_is_one_warning_that_names_the_file() {
    // A device that is always full; the only test that needs the log, so the log is this program's.
    let full = || {
        EventFile::over(
            File::options().write(true).open("/dev/full").unwrap(),
            "/dev/full".into(),
        )
    };
    let error = full().append(&Event::Version).and_then(|()| {
        let mut file = full();
        file.append(&Event::Version)?;
        file.flush()
    });
    let message = error.unwrap_err().to_string();
    assert!(
        message.starts_with("cannot write to the event file /dev/full: No space left"),
        "{message}"
    );

    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let soon = SummaryWriterConfig {
        flush_interval: Duration::ZERO,
        ..SummaryWriterConfig::default()
    };
    let mut writer = SummaryWriter::over(full(), soon).unwrap();
    for step in 0..500 {
        writer.scalars(&[scalar(1.0, step)]);
        std::thread::sleep(Duration::from_micros(100));
    }
    drop(writer);
    let lines: Vec<String> = log.0.lock().unwrap().clone();
    let warnings: Vec<&String> = lines.iter().filter(|line| line.contains("/dev/full")).collect();
    assert_eq!(warnings.len(), 1, "{lines:?}");
    assert!(warnings[0].starts_with("WARN"), "{warnings:?}");
}
