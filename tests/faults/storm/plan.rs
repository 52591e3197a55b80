//! [`Fault`]: what happens to a job, drawn from the seed and the fault's number alone, so that `--only` meets it again.

use std::fmt;
use std::time::Duration;

use tests::storm::Draw;

/// Steps of a job that nothing harms: a second or two of training.
pub const STEPS: u64 = 80;
/// Steps of a job that must not end by itself.
const ENDLESS: u64 = 1_000_000;
/// How long a rank sleeps that is not waited for.
const FOR_EVER: Duration = Duration::from_secs(60);

/// Ranks, tensor-parallel size and pipeline stages.
const FEW_RANKS: [(usize, usize, usize); 9] = [
    (2, 1, 1),
    (2, 2, 1),
    (2, 1, 2),
    (4, 1, 1),
    (4, 2, 1),
    (4, 4, 1),
    (4, 1, 4),
    (4, 2, 2),
    (4, 1, 2),
];
/// The same of ranks that meet over a tree.
const MANY_RANKS: [(usize, usize, usize); 3] = [(32, 2, 4), (32, 4, 2), (32, 4, 4)];

/// Where the job's ranks run, and how they communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub world_size: usize,
    pub tensor: usize,
    pub pipeline: usize,
    pub place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    SharedMemory,
    Tcp,
    /// Two network namespaces with a launcher each.
    TwoNodes,
}

impl Layout {
    pub fn nodes(&self) -> usize {
        1 + usize::from(self.place == Place::TwoNodes)
    }

    pub fn node_of(&self, rank: usize) -> usize {
        rank * self.nodes() / self.world_size
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::SharedMemory => "shared memory",
            Place::Tcp => "tcp",
            Place::TwoNodes => "two nodes",
        };
        write!(
            formatter,
            "{} ranks, tensor {}, pipeline {}, {place}",
            self.world_size, self.tensor, self.pipeline
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// kill -9 of a rank.
    KillRank(usize),
    /// kill -9 of a node's launcher.
    KillLauncher(usize),
    /// SIGSTOP of a rank, for ever.
    StopRank(usize),
    /// SIGSTOP of the launcher that hosts the store, until all ranks have ended.
    StopLauncher,
    /// SIGSTOP of a rank, and SIGCONT before anybody may mind.
    PauseRank(usize, Duration),
    /// The same for a node's launcher.
    PauseLauncher(usize, Duration),
    /// The cable between two nodes is cut.
    Cut,
    /// The cable is cut and mended before anybody may mind.
    Blip(Duration),
    /// Strangers at every port of the job: scans, garbage, half-open connections.
    Garbage(u64),
    /// A rank that sleeps before a step (0: before joining), but not for too long.
    Late(usize, Duration),
    /// A rank that sleeps for ever.
    Missing(usize),
    /// SIGTERM or SIGINT to a node's launcher.
    AskLauncher(usize, i32),
    /// SIGTERM to a rank.
    AskRank(usize),
}

impl Kind {
    /// The name of the kind, without its victim.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::KillRank(_) => "kill rank",
            Kind::KillLauncher(_) => "kill launcher",
            Kind::StopRank(_) => "stop rank",
            Kind::StopLauncher => "stop launcher",
            Kind::PauseRank(..) => "pause rank",
            Kind::PauseLauncher(..) => "pause launcher",
            Kind::Cut => "cut",
            Kind::Blip(_) => "blip",
            Kind::Garbage(_) => "garbage",
            Kind::Late(..) => "late",
            Kind::Missing(_) => "missing",
            Kind::AskLauncher(..) => "ask launcher",
            Kind::AskRank(_) => "ask rank",
        }
    }

    /// Whether the job runs on, to the same end.
    pub fn is_harmless(&self) -> bool {
        matches!(
            self,
            Kind::PauseRank(..) | Kind::PauseLauncher(..) | Kind::Blip(_) | Kind::Garbage(_) | Kind::Late(..)
        )
    }
}

/// One fault, in one job.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub number: u64,
    pub layout: Layout,
    pub kind: Kind,
    /// The step that is done when it strikes; 0: as soon as all ranks' processes are there, and a moment later.
    pub after_step: u64,
    pub moment: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            number,
            layout,
            kind,
            after_step,
            moment,
        } = self;
        write!(
            formatter,
            "fault {number}: {kind:?} {moment:?} after step {after_step} of {layout}"
        )
    }
}

impl Fault {
    /// Draws a fault, of many ranks or of few; on two nodes only where there can be two.
    pub fn draw(seed: u64, number: u64, are_many: bool, has_namespaces: bool) -> Fault {
        let mut draw = Draw::new(seed, number);
        let (world_size, tensor, pipeline) = draw.one_of(if are_many { &MANY_RANKS } else { &FEW_RANKS });
        let place = draw.one_of(&[Place::SharedMemory, Place::Tcp, Place::TwoNodes]);
        let place = if place == Place::TwoNodes && !has_namespaces {
            Place::Tcp
        } else {
            place
        };
        let layout = Layout {
            world_size,
            tensor,
            pipeline,
            place,
        };
        let rank = draw.below(world_size as u64) as usize;
        let node = draw.below(layout.nodes() as u64) as usize;
        let pause = Duration::from_millis(100 + draw.below(1400));
        let signal = draw.one_of(&[libc::SIGINT, libc::SIGTERM]);
        let garbage = draw.bits();
        let is_two = layout.place == Place::TwoNodes;
        let kinds = [
            Kind::KillRank(rank),
            Kind::KillRank(rank),
            Kind::KillLauncher(node),
            Kind::StopRank(rank),
            Kind::StopLauncher,
            Kind::PauseRank(rank, pause),
            Kind::PauseLauncher(node, pause),
            Kind::Garbage(garbage),
            Kind::Late(rank, pause),
            Kind::Missing(rank),
            Kind::AskLauncher(node, signal),
            Kind::AskRank(rank),
            Kind::Cut,
            Kind::Cut,
            Kind::Blip(pause / 3),
        ];
        // Only two nodes have a cable between them.
        let kind = draw.one_of(&kinds[..if is_two { kinds.len() } else { kinds.len() - 3 }]);
        let after_step = match draw.below(4) {
            0 => 0,
            _ => 1 + draw.below(STEPS / 2),
        };
        Fault {
            number,
            layout,
            kind,
            after_step,
            moment: Duration::from_micros(draw.below(if after_step == 0 { 150_000 } else { 20_000 })),
        }
    }

    /// The steps of its job.
    pub fn steps(&self) -> u64 {
        if self.kind.is_harmless() { STEPS } else { ENDLESS }
    }

    /// Returns which rank sleeps, before which step and for how many milliseconds, as text; `None` if none does.
    pub fn sleeper(&self) -> Option<String> {
        let (rank, time) = match self.kind {
            Kind::Late(rank, time) => (rank, time),
            Kind::Missing(rank) => (rank, FOR_EVER),
            _ => return None,
        };
        Some(format!("{rank} {} {}", self.after_step, time.as_millis()))
    }
}
