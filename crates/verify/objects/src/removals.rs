//! An image that is removed while its writer serves it, and another image made at the same path.

use crate::store::Faults;
use crate::world::{World, settings};
use nowait_image_format::{Edit, Origin, PROOF_NS, Request, Status, Writer};

const BLOCKS: u64 = 24;

const NEXT: u8 = 100;

const FIRST: u8 = 1;
const SECOND: u8 = 2;

fn write(block: u64, what: u8) -> Request {
    Request::Write { offset: block * 512, data: vec![what; 512], durable: false }
}

/// Fails if the first image's writer ends a flush with success after the removal, or changes the
/// next image by an operation in flight.
pub fn program(world: &mut World) -> Result<(), String> {
    let first = settings(&mut world.prng, 1);
    let old = world.create(first, [7; 16], BLOCKS);
    let mut flushes = Vec::new();
    for round in 0..world.prng.range(1..=6) {
        world.call(old, write(round, FIRST))?.map_err(|it| format!("{it:?}"))?;
        flushes.push(world.submit(old, Request::Flush));
        world.pass(50_000_000);
    }
    world.store.faults = Faults::swarm(&mut world.prng);
    // Removes the image as `nowait image rm` does.
    let remover = Writer { nonce: [50; 16], name: String::from("a remover") };
    world.edit(Edit::Retire(remover))?;
    ask(world, old, &mut flushes, PROOF_NS);
    world.store.remove_all();
    let removed_ns = world.now_ns;
    let second = settings(&mut world.prng, NEXT);
    let mut new = world.create(second, [8; 16], BLOCKS);
    let mut expected = vec![0; BLOCKS as usize];
    for _ in 0..world.prng.range(1..=3) {
        for round in 0..world.prng.range(1..=6) {
            let block = (round * 5) % BLOCKS;
            served(world, new, write(block, SECOND))?;
            expected[block as usize] = SECOND;
            let for_ns = world.prng.range(0..=40_000_000_000);
            ask(world, old, &mut flushes, for_ns);
            served(world, new, Request::Flush)?;
        }
        let found = served(world, new, Request::Read { offset: 0, len: BLOCKS * 512 })?;
        let found: Vec<u8> = found.chunks(512).map(|block| block[0]).collect();
        if found != expected {
            return Err(format!("the new image is {found:?} and not {expected:?}"));
        }
        world.kill(new);
        let number = NEXT + 1 + new as u8;
        let next = settings(&mut world.prng, number);
        new = world.open(next, Origin::TakeOver);
    }
    let late = |number: &&u64| {
        let ended = world.ended(**number);
        ended.is_some_and(|(result, at_ns)| result.is_ok() && *at_ns > removed_ns)
    };
    match flushes.iter().filter(late).count() {
        0 => Ok(()),
        late => Err(format!("{late} flushes of an image that was removed have ended well")),
    }
}

fn ask(world: &mut World, client: usize, flushes: &mut Vec<u64>, for_ns: u64) {
    let end_ns = world.now_ns + for_ns;
    while world.now_ns < end_ns {
        if world.prng.index(12) == 0 {
            let stop_ns = world.prng.range(0..=150_000_000_000);
            world.stop(client, stop_ns);
        }
        let block = world.prng.range(0..=BLOCKS - 1);
        world.submit(client, write(block, FIRST));
        flushes.push(world.submit(client, Request::Flush));
        let pass_ns = world.prng.range(0..=for_ns / 4 + 1);
        world.pass(pass_ns);
    }
}

fn served(world: &mut World, client: usize, request: Request) -> Result<Vec<u8>, String> {
    let result = world.call(client, request)?;
    result.map_err(|why| match world.status(client) {
        Some(Status::Over(over)) => format!("a writer of the new image: {over:?}"),
        _ => format!("{why:?}"),
    })
}
