//! Maps addresses of another process to functions, by the debug information of its objects.

use addr2line::Loader;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;

/// The objects that a process has mapped.
pub struct Symbols {
    mapped: Vec<Mapped>,
    loaders: HashMap<String, Option<Loader>>,
}

/// A function, as the debug information names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// The function's name; if it is unknown, an address or an offset in the object.
    pub name: String,
    /// The path of its source; empty if it is unknown.
    pub file: String,
}

struct Mapped {
    start: u64,
    end: u64,
    /// The address of the object's first mapping.
    base: u64,
    path: String,
}

impl Symbols {
    /// Reads the mappings of a process.
    pub fn of(process: i32) -> Self {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("a process");
        let mut bases: HashMap<String, u64> = HashMap::new();
        let mut mapped = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let Some((start, end)) = words.next().and_then(|it| it.split_once('-')) else {
                continue;
            };
            let address = |text| u64::from_str_radix(text, 16).expect("an address");
            let (start, end) = (address(start), address(end));
            let path = words.nth(4).unwrap_or("anonymous").to_owned();
            let base = *bases.entry(path.clone()).or_insert(start);
            mapped.push(Mapped { start, end, base, path });
        }
        Self { mapped, loaders: HashMap::new() }
    }

    /// Returns the functions at an address, the innermost inlined one first.
    pub fn functions(&mut self, address: u64) -> Vec<Function> {
        let mapped = self.mapped.iter().find(|it| (it.start..it.end).contains(&address));
        let Some(mapped) = mapped else { return vec![Function::unknown(address)] };
        let loader = self.loaders.entry(mapped.path.clone());
        let loader = loader.or_insert_with(|| Loader::new(&mapped.path).ok());
        let offset = address - mapped.base;
        let found = loader.as_ref().map(|it| functions(it, offset)).unwrap_or_default();
        if found.is_empty() { vec![Function::unknown(offset)] } else { found }
    }
}

impl Function {
    fn unknown(address: u64) -> Self {
        Self { name: format!("{address:#x}"), file: String::new() }
    }
}

fn functions(loader: &Loader, offset: u64) -> Vec<Function> {
    let mut found = Vec::new();
    let Ok(mut frames) = loader.find_frames(offset) else { return found };
    while let Ok(Some(frame)) = frames.next() {
        let name = frame.function.and_then(|it| it.demangle().ok().map(Cow::into_owned));
        let file = frame.location.and_then(|it| it.file).unwrap_or_default().to_owned();
        found.extend(name.map(|name| Function { name, file }));
    }
    found
}
