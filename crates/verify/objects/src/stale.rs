//! A writer stands still while other writers start, discard everything and end. Neither operations
//! of the stopped writer nor its clients' later writes may change the image then.

use crate::store::Faults;
use crate::world::{World, settings};
use nowait_image_format::{Origin, PROOF_NS, Request, Settings};

const BLOCKS: u64 = 24;

fn write(block: u64, what: u8) -> Request {
    Request::Write { offset: block % BLOCKS * 512, data: vec![what; 512], durable: false }
}

/// Fails if the image differs from what the other writers have left.
pub fn program(world: &mut World) -> Result<(), String> {
    let first = Settings { segment_blocks: 1, ..settings(&mut world.prng, 1) };
    let old = world.create(first, [7; 16], BLOCKS);
    for block in 0..world.prng.range(1..=4) {
        world.call(old, write(block, 1))?.map_err(|why| format!("{why:?}"))?;
    }
    world.call(old, Request::Flush)?.map_err(|why| format!("{why:?}"))?;
    let stop_ns = world.prng.range(PROOF_NS..=4 * PROOF_NS);
    world.stop(old, stop_ns);
    let mut expected = vec![0; BLOCKS as usize];
    let mut number = 2;
    while number < 4 {
        let next = Settings { checkpoint_segments: 1, ..settings(&mut world.prng, number) };
        let next = world.open(next, Origin::TakeOver);
        let pass_ns = world.prng.range(0..=2 * PROOF_NS);
        world.pass(pass_ns);
        let discard = Request::Discard { offset: 0, len: BLOCKS * 512 };
        served(world, next, discard)?;
        served(world, next, Request::Flush)?;
        expected.fill(0);
        if world.prng.index(3) == 0 {
            served(world, next, write(3, number))?;
            served(world, next, Request::Flush)?;
            expected[3] = number;
        }
        world.pass(5_000_000_000);
        if world.prng.index(2) == 0 {
            served(world, next, Request::Close)?;
        }
        world.kill(next);
        number += 1;
    }
    // The stopped writer continues: its clients write, and neither flush nor read.
    world.pass(stop_ns);
    world.store.faults = Faults::swarm(&mut world.prng);
    for block in 0..40 {
        world.submit(old, write(block, 66));
        let pass_ns = world.prng.range(0..=1_000_000_000);
        world.pass(pass_ns);
    }
    world.store.faults = Faults::default();
    world.kill(old);
    let last = settings(&mut world.prng, 99);
    let last = world.open(last, Origin::TakeOver);
    let found = served(world, last, Request::Read { offset: 0, len: BLOCKS * 512 })?;
    let found: Vec<u8> = found.chunks(512).map(|block| block[0]).collect();
    match found == expected {
        true => Ok(()),
        false => Err(format!("it is {found:?} and not {expected:?}")),
    }
}

fn served(world: &mut World, client: usize, request: Request) -> Result<Vec<u8>, String> {
    let result = world.call(client, request)?;
    result.map_err(|why| format!("{why:?}: {:?}", world.status(client)))
}
