//! Tests of recordings.

use super::*;

#[test]
fn nothing_is_recorded_while_it_is_off() {
    let (timeline, world) = (Timeline::default(), ProcessGroup::single());
    timeline.measure(Activity::Forward, TimelineLabel::default(), || ());
    timeline.start(&world).unwrap();
    timeline.set_step(3);
    let label = TimelineLabel {
        micro_batch: Some(1),
        chunk: Some(0),
        direction: None,
        peer: None,
    };
    assert_eq!(timeline.measure(Activity::Backward, label, || 7), 7);
    timeline.stop();
    timeline.measure(Activity::Forward, TimelineLabel::default(), || ());
    let ranks = timeline.gather(&world).unwrap();
    assert_eq!(ranks.len(), 1);
    let [event] = ranks[0].as_slice() else {
        panic!("{ranks:?}");
    };
    assert_eq!(
        (event.activity, event.step, event.micro_batch),
        (Activity::Backward, 3, Some(1))
    );
    assert!(0.0 <= event.start && event.start <= event.end);
    assert!(timeline.take().is_empty());
}

/// Keeps what it is shown.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<(bool, Activity, Duration)>>);

impl TimelineObserver for Kept {
    fn begins(&self, activity: Activity, _: TimelineLabel) {
        self.0.lock().push((true, activity, Duration::ZERO));
    }

    fn ends(&self, activity: Activity, _: TimelineLabel, time: Duration) {
        self.0.lock().push((false, activity, time));
    }
}

#[test]
fn an_observer_is_shown_everything_while_nothing_is_recorded() {
    let kept = Arc::new(Kept::default());
    let timeline = Timeline::default().with_observer(kept.clone());
    let label = TimelineLabel::default();
    let result = timeline.clone().measure(Activity::Forward, label, || {
        let now = Instant::now();
        timeline.record(Activity::Wait, label, now, now + Duration::from_secs(2));
        7
    });
    assert_eq!(result, 7);
    let seen = kept.0.lock();
    let [begin, wait, end] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(*begin, (true, Activity::Forward, Duration::ZERO));
    assert_eq!(*wait, (false, Activity::Wait, Duration::from_secs(2)));
    assert_eq!((end.0, end.1), (false, Activity::Forward));
    assert!(timeline.take().is_empty());
}

#[test]
fn a_receive_begins_no_earlier_than_its_own_send() {
    let transfer = |activity, direction, peer, start, end| TimelineEvent {
        activity,
        step: 1,
        micro_batch: Some(0),
        chunk: Some(0),
        direction: Some(direction),
        peer: Some(peer),
        start,
        end,
    };
    let mut ranks = vec![
        vec![
            transfer(Activity::Send, Direction::Forward, 1, 3.0, 4.0),
            transfer(Activity::Send, Direction::Backward, 1, 9.0, 10.0),
        ],
        vec![
            transfer(Activity::Receive, Direction::Forward, 0, 0.5, 3.5),
            // Asked for after its send.
            transfer(Activity::Receive, Direction::Backward, 0, 9.5, 11.0),
            // No rank recorded its send.
            transfer(Activity::Receive, Direction::Forward, 2, 0.5, 2.0),
        ],
    ];
    begin_receives_with_sends(&mut ranks);
    let starts: Vec<f64> = ranks[1].iter().map(|event| event.start).collect();
    assert_eq!(starts, [3.0, 9.5, 0.5]);
    assert_eq!(ranks[0][0].start, 3.0);
}
