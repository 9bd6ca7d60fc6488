//! Waiting with a signal mask (io_pgetevents).

mod common;

use common::*;
use nowait_file::Context;
use nowait_sys::{Errno, time::Deadline};
use std::io::Write;

const POLLIN: u16 = 1;

fn wait(context: &Context, deadline: Deadline) -> Option<(u64, i64)> {
    let mut seen = None;
    loop {
        let taken = context.wait_events(1, 1, deadline, Some(0), |_, event| {
            seen = Some((event.data, event.res));
            Ok(())
        });
        match taken {
            Err(Errno::INTR) => {} // a debugger or a freezer
            taken => return taken.map(|_| seen).unwrap(),
        }
    }
}

#[test]
fn a_caller_with_a_mask_is_woken_each_time_by_the_same_notifier() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let before = context.descriptors();
        // A caller whose time is over before it sleeps makes no notifier.
        while context.descriptors() == before {
            assert_eq!(wait(&context, Deadline::after_ns(100_000)), None);
        }
        let with_notifier = context.descriptors();
        assert_eq!(with_notifier.len(), before.len() + 1);
        for round in 0..200 {
            let (reader, mut writer) = std::io::pipe().unwrap();
            submit(&context, round, poll(&reader, POLLIN)).unwrap();
            let event = std::thread::scope(|scope| {
                let waiter = scope.spawn(|| wait(&context, Deadline::NEVER));
                writer.write_all(b"x").unwrap();
                waiter.join().unwrap()
            });
            assert_eq!(event, Some((round, i64::from(POLLIN))));
        }
        assert_eq!(context.descriptors(), with_notifier);
        context.destroy().unwrap();
    });
}
