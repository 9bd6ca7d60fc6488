//! The eventfd that the requests of a submission signal: most submissions use only one.

use nowait_block::bio::Descriptor;
use nowait_sys::Errno;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct EventCounter(Option<(i32, Arc<dyn Descriptor>)>);

impl EventCounter {
    pub(super) fn held<T: Descriptor + 'static>(
        &mut self,
        number: Option<i32>,
        hold: impl FnOnce(i32) -> Result<Arc<T>, Errno>,
    ) -> Result<Option<Arc<dyn Descriptor>>, Errno> {
        let Some(number) = number else { return Ok(None) };
        match &self.0 {
            Some((known, held)) if *known == number => Ok(Some(held.clone())),
            _ => Ok(Some(self.0.insert((number, hold(number)?)).1.clone())),
        }
    }
}
