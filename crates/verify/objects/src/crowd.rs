//! Clients that flush at different times: the writer must collect overwritten data nevertheless.

use crate::world::{World, settings};
use nowait_image_format::{Request, Settings};

const BLOCKS: u64 = 256;

const ROUNDS: u64 = 4_000;

/// Most stored bytes in percent of the live ones: 140, and a few segments not yet collected.
const HELD_PERCENT_MAX: u64 = 155;

/// Overwrites random blocks, and flushes after each write. Fails if the store holds too much.
pub fn program(world: &mut World) -> Result<(), String> {
    let (segment_blocks, garbage_percent) = (16, 30);
    let (checkpoint_segments, checkpoint_bytes) = (16, 64 << 10);
    let first = settings(&mut world.prng, 1);
    let writer = Settings {
        segment_blocks,
        garbage_percent,
        checkpoint_segments,
        checkpoint_bytes,
        ..first
    };
    let image = world.create(writer, [7; 16], BLOCKS);
    let fill = Request::Write { offset: 0, data: vec![1; BLOCKS as usize * 512], durable: true };
    world.call(image, fill)?.map_err(|why| format!("{why:?}"))?;
    let clients = world.prng.range(4..=16) as usize;
    let mut waiting: Vec<u64> = Vec::new();
    for _ in 0..ROUNDS {
        let block = world.prng.range(0..=BLOCKS - 1);
        let data = vec![2; 512];
        world.submit(image, Request::Write { offset: block * 512, data, durable: false });
        waiting.push(world.submit(image, Request::Flush));
        while waiting.len() >= clients {
            let ended = world
                .until(|world| waiting.iter().position(|number| world.ended(*number).is_some()));
            waiting.swap_remove(ended.ok_or("a flush does not end")?);
        }
    }
    let usage =
        world.image(image).and_then(nowait_image_format::Image::usage).ok_or("it is not served")?;
    match usage.held_bytes * 100 > usage.live_bytes * HELD_PERCENT_MAX {
        false => Ok(()),
        true => Err(format!("{} bytes are held, {} live", usage.held_bytes, usage.live_bytes)),
    }
}
