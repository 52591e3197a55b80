//! What the recorder sees of a program.

use burn::tensor::TensorData;

/// A tensor that an operation had or made.
pub(super) struct Seen {
    pub(super) id: u64,
    pub(super) shape: Vec<usize>,
    pub(super) places: String,
    /// Its elements, where they are not known yet.
    pub(super) data: Option<TensorData>,
}

/// What is seen of a program that no operation makes at that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// As the backward pass has returned it.
    Loss,
    /// Where its parameter is.
    Gradient,
    /// After the last step.
    Parameter,
}

impl Judged {
    const ALL: [Self; 3] = [Self::Loss, Self::Gradient, Self::Parameter];

    /// What stands for it where operations have names.
    pub(super) fn name(self) -> &'static str {
        match self {
            Judged::Loss => "loss",
            Judged::Gradient => "gradient",
            Judged::Parameter => "parameter",
        }
    }

    /// Whether this is a name of one of them, and none of an operation.
    pub(super) fn is_name(name: &str) -> bool {
        Self::ALL.iter().any(|judged| judged.name() == name)
    }
}
