//! A lost object, or an older head: reads return the flushed data, or an error.

use crate::world::{World, settings};
use nowait_image_format::{Edit, Head, Header, Key, Origin, Request, Status};
use std::collections::BTreeMap;

const BLOCKS: u64 = 24;
const IMAGE: [u8; 16] = [7; 16];

/// The result of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Reads return all data.
    Whole,
    /// Reads of one or more blocks fail, and the writer goes on.
    Partly,
    /// The writer ends: it refuses the image.
    Refused,
    /// A read returned older data, and nothing can show that the lost object existed.
    Unknowable,
}

/// Loses one object, or restores an older head. Fails if the next writer reads wrong data although
/// an object shows the loss.
pub fn program(world: &mut World, outcomes: &mut BTreeMap<Outcome, u64>) -> Result<(), String> {
    let mut expected = vec![0; BLOCKS as usize];
    let first = settings(&mut world.prng, 1);
    let mut writer = world.create(first, IMAGE, BLOCKS);
    let mut version = 0;
    let mut heads = Vec::new();
    for number in 0..world.prng.range(1..=3) {
        if number > 0 {
            heads.push(world.store.head()?.encode());
            let next = settings(&mut world.prng, 10 + number as u8);
            writer = world.open(next, Origin::TakeOver);
        }
        for _ in 0..world.prng.range(0..=30) {
            let block = world.prng.range(0..=BLOCKS - 1);
            version = version % 250 + 1;
            expected[block as usize] = version;
            let (offset, data) = (block * 512, vec![version; 512]);
            served(world, writer, Request::Write { offset, data, durable: false })?;
            if world.prng.index(3) > 0 {
                served(world, writer, Request::Flush)?;
            }
        }
        served(world, writer, Request::Flush)?;
        if world.prng.index(6) == 0 {
            world.edit(Edit::Snapshot(format!("snapshot {number}")))?;
        }
        if world.prng.index(2) == 0 {
            served(world, writer, Request::Close)?;
        }
        world.pass(60_000_000_000);
        world.kill(writer);
    }
    let is_old_head = world.prng.index(3) == 0 && !heads.is_empty();
    let is_known = match is_old_head {
        true => {
            let nth = world.prng.index(heads.len());
            world.store.plant(0, IMAGE, Key::Head, heads.swap_remove(nth));
            true
        }
        false => lose(world)?,
    };
    let last = settings(&mut world.prng, 99);
    let next = world.open(last, Origin::TakeOver);
    let mut outcome = Outcome::Whole;
    for block in 0..BLOCKS {
        let read = Request::Read { offset: block * 512, len: 512 };
        let result = world.call(next, read)?;
        match (result, world.status(next)) {
            (Ok(data), _) if data.iter().all(|it| *it == expected[block as usize]) => {}
            (Ok(_), _) if !is_known => outcome = Outcome::Unknowable,
            (Ok(data), _) => {
                return Err(format!("block {block} is {} of {expected:?}", data[0]));
            }
            (Err(_), Some(Status::Over(_))) => outcome = Outcome::Refused,
            (Err(_), _) => outcome = Outcome::Partly,
        }
    }
    *outcomes.entry(outcome).or_default() += 1;
    Ok(())
}

fn served(world: &mut World, client: usize, request: Request) -> Result<Vec<u8>, String> {
    let result = world.call(client, request)?;
    result.map_err(|why| format!("{why:?}: {:?}", world.status(client)))
}

/// Loses a random object; a draw of the head loses none. Returns `false` if nothing shows that the
/// lost object existed.
fn lose(world: &mut World) -> Result<bool, String> {
    let head = world.store.head()?;
    let keys: Vec<Key> = world.store.objects().map(|(key, _)| key).collect();
    let nth = world.prng.index(keys.len());
    let key = keys[nth];
    if key == Key::Head {
        return Ok(true);
    }
    world.store.take(IMAGE, key);
    let Key::Segment(lost) = key else { return Ok(true) };
    Ok(lost < head.checkpoint.position || lost < head.known_end() || is_proven(world, &head, lost))
}

fn is_proven(world: &World, head: &Head, lost: u64) -> bool {
    world.store.objects().any(|(key, body)| {
        let Key::Segment(sequence) = key else { return false };
        let header = Header::parse(body, body.len() as u64, head.geometry);
        sequence > lost && header.is_ok_and(|(header, _)| header.proves(lost))
    })
}
