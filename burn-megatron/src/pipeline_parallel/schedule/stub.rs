use super::*;
#[derive(Debug, thiserror::Error)]
#[error("stub")]
pub struct ScheduleError;
impl Schedule {
    pub fn check(&self, _c: usize) -> Result<(), ScheduleError> {
        Ok(())
    }
}
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.from)
    }
}
