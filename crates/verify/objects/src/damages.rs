//! The objects of an image and its clone, damaged one at a time, in each of six ways: reads return
//! the flushed data, or an error.

use crate::store::{CLONE, HOMES, Home, IMAGE};
use crate::world::{World, settings};
use nowait_image_format::{Edit, Key, Origin, Request, Settings, Status, Writer};
use std::collections::BTreeMap;
use std::fmt;

const BLOCKS: u64 = 24;

/// The damage of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// The object is deleted.
    Gone,
    /// The object becomes empty.
    Empty,
    /// The object loses the second half of its bytes.
    Cut,
    /// A bit near the object's front is changed.
    Front,
    /// A bit near the object's end is changed.
    End,
    /// A head gets its image's earliest head; another object gets the content of another of its
    /// kind, or is deleted if there is none.
    Older,
}

impl Damage {
    /// All kinds of damage.
    pub const ALL: [Damage; 6] =
        [Damage::Gone, Damage::Empty, Damage::Cut, Damage::Front, Damage::End, Damage::Older];
}

/// When the object is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Before writers open the images.
    Before,
    /// While writers serve the images.
    Served,
}

/// The result for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All data is read correctly.
    Whole,
    /// Reads of one or more blocks fail, and the writer goes on.
    Partly,
    /// The writer ends: it refuses the image.
    Refused,
}

/// Counts of each outcome for a kind of object, by damage and time.
pub type Table = BTreeMap<(&'static str, Damage, When), BTreeMap<Outcome, u64>>;

/// A row of the table, for printing.
pub struct Row<'a>(pub &'a BTreeMap<Outcome, u64>);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |outcome| self.0.get(&outcome).copied().unwrap_or(0);
        let (whole, partly) = (of(Outcome::Whole), of(Outcome::Partly));
        write!(f, "whole {whole:3}, partly {partly:3}, refused {:3}", of(Outcome::Refused))
    }
}

struct Built {
    heads: [Vec<Vec<u8>>; 2],
    expected: [Vec<u8>; 2],
}

fn writer(number: u8) -> Writer {
    Writer { nonce: [number; 16], name: format!("writer {number}") }
}

fn small(number: u8) -> Settings {
    Settings {
        segment_blocks: 4,
        checkpoint_bytes: 1 << 20,
        checkpoint_segments: 6,
        garbage_percent: 60,
        ..Settings::new(writer(number))
    }
}

fn fill(world: &mut World, client: usize, from: u8, expected: &mut [u8]) -> Result<(), String> {
    for round in 0..13 {
        let (what, block) = (from + round, u64::from(round) * 7 % BLOCKS);
        let len = 3.min(BLOCKS - block);
        let data = vec![what; len as usize * 512];
        served(world, client, Request::Write { offset: block * 512, data, durable: true })?;
        expected[block as usize..(block + len) as usize].fill(what);
    }
    Ok(())
}

fn build(world: &mut World) -> Result<Built, String> {
    let mut image = vec![0; BLOCKS as usize];
    let mut heads = [Vec::new(), Vec::new()];
    let name = |home: Home| (home, Key::Head.name([0; 16]));
    let mut clone = image.clone();
    let mut number = 1;
    let mut client = world.create(small(number), [7; 16], BLOCKS);
    for round in 0..3 {
        fill(world, client, 20 * round + 1, &mut image)?;
        if round == 1 {
            let head = world.edit(Edit::Snapshot("monday".to_owned()))?;
            let snapshot = head.snapshot("monday").ok_or("no snapshot")?;
            let head = head.clone_of(snapshot, HOMES[IMAGE], [8; 16], writer(100))?;
            world.store.plant(CLONE, [8; 16], Key::Head, head.encode());
            clone.clone_from(&image);
        }
        served(world, client, Request::Close)?;
        heads[IMAGE].extend(world.store.body(&name(IMAGE)).map(<[u8]>::to_vec));
        number += 1;
        if round < 2 {
            client = world.open(small(number), Origin::TakeOver);
        }
    }
    for round in 0..2 {
        heads[CLONE].extend(world.store.body(&name(CLONE)).map(<[u8]>::to_vec));
        let client = world.open_at(CLONE, small(110 + round), Origin::TakeOver);
        fill(world, client, 100 + 20 * round, &mut clone)?;
        served(world, client, Request::Close)?;
    }
    Ok(Built { heads, expected: [image, clone] })
}

fn served(world: &mut World, client: usize, request: Request) -> Result<Vec<u8>, String> {
    let result = world.call(client, request)?;
    result.map_err(|why| format!("{why:?}: {:?}", world.status(client)))
}

/// Builds both images, and returns the names of all objects.
pub fn names(world: &mut World) -> Result<Vec<(Home, String)>, String> {
    build(world)?;
    Ok(world.store.names())
}

/// Damages an object, and reads both images. Fails if a read returns wrong data.
pub fn program(
    world: &mut World,
    name: &(Home, String),
    damage: Damage,
    when: When,
    table: &mut Table,
) -> Result<(), String> {
    let built = build(world)?;
    let open = |world: &mut World| {
        [IMAGE, CLONE].map(|home| {
            let settings = settings(&mut world.prng, 200 + home as u8);
            world.open_at(home, settings, Origin::TakeOver)
        })
    };
    let is_before = when == When::Before;
    if is_before {
        apply(world, name, damage, &built);
    }
    let clients = open(world);
    if !is_before {
        for client in clients {
            served(world, client, Request::Read { offset: 0, len: 512 })?;
        }
        apply(world, name, damage, &built);
    }
    let kind = match name.1.split_once('/') {
        Some(("log", _)) => "log",
        Some(_) => "map",
        None => "head",
    };
    for (client, expected) in clients.into_iter().zip(&built.expected) {
        let mut outcome = Outcome::Whole;
        for block in 0..BLOCKS {
            let read = Request::Read { offset: block * 512, len: 512 };
            let is_over = |world: &World| matches!(world.status(client), Some(Status::Over(_)));
            match world.call(client, read)? {
                Ok(data) if data.iter().all(|it| *it == expected[block as usize]) => {}
                Ok(data) => {
                    let what = data.first().copied().unwrap_or_default();
                    return Err(format!("{name:?} {damage:?}: block {block} is {what}"));
                }
                Err(_) if is_over(world) => outcome = Outcome::Refused,
                Err(_) => outcome = Outcome::Partly,
            }
        }
        *table.entry((kind, damage, when)).or_default().entry(outcome).or_default() += 1;
    }
    Ok(())
}

fn apply(world: &mut World, name: &(Home, String), damage: Damage, built: &Built) {
    let other = if name.1 == "head" {
        built.heads[name.0].first().cloned()
    } else {
        let is_other = |it: &&(Home, String)| **it != *name && it.1[..3] == name.1[..3];
        let names = world.store.names();
        names.iter().find(is_other).and_then(|it| world.store.body(it)).map(<[u8]>::to_vec)
    };
    world.store.change(name, |bytes| {
        let mut bytes = bytes.to_vec();
        let len = bytes.len();
        match damage {
            Damage::Gone => return None,
            Damage::Empty => bytes.clear(),
            Damage::Cut => bytes.truncate(len / 2),
            Damage::Front => bytes[len.min(40) - 1] ^= 4,
            Damage::End => bytes[len - 7] ^= 4,
            Damage::Older => return other,
        }
        Some(bytes)
    });
}
