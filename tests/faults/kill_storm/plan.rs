//! Which lives there are and when each is ended: drawn from a seed and the number of a life.

use std::fmt;

use tests::storm::Draw;

/// Steps of a life: more than its kills can let pass.
pub const STEPS: u64 = 90;
/// The most steps between the start of a job and its kill.
const REACH: u64 = 10;
/// Kills of a life.
pub const KILLS: u64 = 6;

/// How the ranks share the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layout {
    pub name: &'static str,
    pub flags: &'static str,
    pub ranks: usize,
}

const LAYOUTS: [Layout; 10] = [
    Layout {
        name: "dp2",
        flags: "--world-size 2",
        ranks: 2,
    },
    Layout {
        name: "dp2 sharded",
        flags: "--world-size 2 --use-distributed-optimizer",
        ranks: 2,
    },
    Layout {
        name: "tp2",
        flags: "--tensor-model-parallel-size 2 --sequence-parallel",
        ranks: 2,
    },
    Layout {
        name: "pp2",
        flags: "--pipeline-model-parallel-size 2",
        ranks: 2,
    },
    // Begins with steps that are skipped.
    Layout {
        name: "dp2 sharded fp16",
        flags: "--world-size 2 --use-distributed-optimizer --fp16 --loss-scale-window 7",
        ranks: 2,
    },
    Layout {
        name: "dp2 sharded gradients",
        flags: "--world-size 2 --zero-stage 2",
        ranks: 2,
    },
    Layout {
        name: "dp2 sharded parameters",
        flags: "--world-size 2 --zero-stage 3",
        ranks: 2,
    },
    Layout {
        name: "dp2 sharded, state in files",
        flags: "--world-size 2 --use-distributed-optimizer --offload-optimizer nvme --nvme-path /tmp",
        ranks: 2,
    },
    Layout {
        name: "dp2 all in files",
        flags: "--world-size 2 --zero-stage 3 --offload-optimizer nvme --offload-param nvme --nvme-path /tmp",
        ranks: 2,
    },
    Layout {
        name: "tp2 dp2 sharded",
        flags: "--tensor-model-parallel-size 2 --world-size 4 --use-distributed-optimizer",
        ranks: 4,
    },
];

/// A run that is killed again and again, and resumed each time until its last step.
#[derive(Clone, Debug)]
pub struct Life {
    pub number: u64,
    pub layout: Layout,
    pub save_interval: u64,
    pub is_asynchronous: bool,
    pub keep: Option<u64>,
    pub kills: Vec<Kill>,
}

/// One `kill -9`.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    pub victim: Victim,
    pub moment: Moment,
    /// Whether the next job resumes from the oldest checkpoint, and so saves again what is saved already.
    pub goes_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Rank(usize),
    Launcher,
    /// Launcher and ranks at once, as when a machine's memory is out or a scheduler's patience.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment {
    /// When a save has begun that many saves were begun before, and a share of the time that a save takes has gone by.
    InSave { before: u64, share: f64 },
    /// After that many steps of the job, and a share of the time of a step.
    AfterStep { steps: u64, share: f64 },
    /// While the job starts: a share of the time until its first step.
    AtStart { share: f64 },
}

impl Life {
    pub fn draw(seed: u64, number: u64, kills: u64) -> Self {
        let mut draw = Draw::new(seed, number);
        let layout = draw.one_of(&LAYOUTS);
        let save_interval = draw.one_of(&[1, 2, 3, 5]);
        let is_asynchronous = draw.below(2) == 0;
        let keep = draw.one_of(&[None, None, Some(1), Some(2)]);
        let kills = (0..kills)
            .map(|_| Kill::draw(&mut draw, layout, save_interval))
            .collect();
        Self {
            number,
            layout,
            save_interval,
            is_asynchronous,
            keep,
            kills,
        }
    }

    /// The flags that only this life has.
    pub fn flags(&self) -> String {
        let mut flags = format!("--save-interval {}", self.save_interval);
        if self.is_asynchronous {
            flags += " --async-save";
        }
        if let Some(keep) = self.keep {
            flags += &format!(" --ckpt-keep {keep}");
        }
        flags
    }
}

impl fmt::Display for Life {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "life {} ({}, {})",
            self.number,
            self.layout.name,
            self.flags()
        )
    }
}

impl Kill {
    fn draw(draw: &mut Draw, layout: Layout, save_interval: u64) -> Self {
        let share = draw.share();
        let steps = draw.below(REACH);
        let moment = match draw.below(10) {
            0..6 => Moment::InSave {
                before: steps / save_interval,
                // A little beyond the end, where old checkpoints are removed.
                share: 1.3 * share,
            },
            6..9 => Moment::AfterStep {
                steps: steps + 1,
                share,
            },
            _ => Moment::AtStart { share },
        };
        let victim = match draw.below(3) {
            0 => Victim::Rank(draw.below(layout.ranks as u64) as usize),
            1 => Victim::Launcher,
            _ => Victim::All,
        };
        Self {
            victim,
            moment,
            goes_back: draw.below(5) == 0,
        }
    }
}
