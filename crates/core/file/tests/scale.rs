//! Many requests over many contexts. `SCALE=full` runs the full number: 100,000 requests over 1,000
//! contexts.

mod common;

use common::*;
use nowait_file::{Context, Engine};
use std::{io::Write, sync::Arc};

const POLLIN: u16 = 1;
const GIB: u64 = 1 << 30;

fn scale(quick: u64, full: u64) -> u64 {
    if std::env::var_os("SCALE").is_some_and(|scale| scale == "full") { full } else { quick }
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn a_thousand_contexts(engine: &Arc<Engine>) {
    const PIPES: u64 = 100;
    let (contexts, each) = (scale(50, 1000), 100);
    let before = resident_bytes();
    let pipes: Vec<_> = (0..PIPES).map(|_| std::io::pipe().unwrap()).collect();
    let contexts: Vec<_> =
        (0..contexts).map(|id| Context::new(engine, id as u32, 128).unwrap()).collect();
    for context in &contexts {
        for name in 0..each {
            submit(context, name, poll(&pipes[(name % PIPES) as usize].0, POLLIN)).unwrap();
        }
    }
    let under_way: usize = contexts.iter().map(|context| context.io().outstanding()).sum();
    assert_eq!(under_way as u64, contexts.len() as u64 * each);
    let requests =
        |contexts: &[Arc<Context>]| contexts.iter().map(|it| it.requests()).sum::<usize>();
    assert_eq!(requests(&contexts), under_way);
    let used = resident_bytes().saturating_sub(before);
    println!("{under_way} requests in flight: {} MiB", used >> 20);
    assert!(used < GIB, "{used} bytes");
    for (index, context) in contexts.iter().enumerate() {
        if index % 2 == 0 {
            (0..each).for_each(|name| context.cancel(name).unwrap());
        }
    }
    for (_, writer) in &pipes {
        (&*writer).write_all(b"x").unwrap();
    }
    for context in &contexts {
        assert_eq!(reap(context, each as usize).len() as u64, each);
        context.destroy().unwrap();
    }
    assert_eq!(requests(&contexts), 0);
}

#[test]
fn many_requests_over_many_contexts_fit_into_memory_and_all_end() {
    on_every_backend(a_thousand_contexts);
}
