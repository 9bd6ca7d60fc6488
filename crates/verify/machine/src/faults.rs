//! What a program may ask of its machine: devices that fail, and a power cut.

use crate::{interpose::with_machine, schedule::World};
use nowait_sim::Faults;

/// A power cut to come.
pub(crate) struct Cut {
    /// It happens at this system call, counted from the beginning of the run.
    at: u64,
    path: &'static str,
    faults: Faults,
    then: Box<dyn FnOnce(Vec<u8>) + Send>,
}

impl World {
    /// Has the power fail if its time has come.
    pub(crate) fn cut_power_if_due(&mut self) {
        let calls = self.calls();
        let Some(cut) = self.cut.take_if(|cut| cut.at <= calls) else { return };
        self.note(|| "the power fails".to_owned());
        let left = self.left_after_cut(cut.path, &cut.faults);
        (cut.then)(left);
    }
}

/// Sets how the devices of the calling thread's machine fail from now on.
///
/// # Panics
/// The thread is on no machine.
pub fn set_faults(faults: Faults) {
    with_machine(|world| world.faults = faults);
}

/// Has the power fail when `calls` more system calls have been made. What is left of a file then,
/// as `faults` says, is given to `then`, which must not wait. The run goes on as if nothing had
/// happened, so that its end can be judged, too.
///
/// # Panics
/// The thread is on no machine.
pub fn cut_power_after(
    calls: u64,
    path: &'static str,
    faults: Faults,
    then: impl FnOnce(Vec<u8>) + Send + 'static,
) {
    with_machine(|world| {
        let at = world.calls() + calls;
        world.cut = Some(Cut { at, path, faults, then: Box::new(then) });
    });
}

/// Has the power fail now if that has not happened yet.
///
/// # Panics
/// The thread is on no machine.
pub fn cut_power_now() {
    with_machine(|world| {
        if let Some(cut) = &mut world.cut {
            cut.at = 0;
        }
        world.cut_power_if_due();
    });
}
