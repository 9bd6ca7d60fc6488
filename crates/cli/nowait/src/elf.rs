//! The kind of an executable file, read from its headers without running it.

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Image {
    Elf(Elf),
    /// A file that begins with `#!`: the interpreter and its first argument.
    Script(PathBuf, Option<String>),
    /// An ELF file of another word size or byte order.
    Foreign,
    Other,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// `true` if the file names a loader (PT_INTERP), or is a shared library. Otherwise no library
    /// can be put in front of it.
    pub(crate) dynamic: bool,
    pub(crate) needed: Vec<String>,
    pub(crate) imports: Vec<String>,
}

pub(crate) fn inspect(path: &Path) -> Result<Image, String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let mut start = [0u8; 256];
    let mut len = 0;
    while len < start.len() {
        match file.read(&mut start[len..]).map_err(|error| error.to_string())? {
            0 => break,
            count => len += count,
        }
    }
    let start = &start[..len];
    if let Some(rest) = start.strip_prefix(b"#!") {
        return Ok(script(rest));
    }
    if !start.starts_with(b"\x7fELF") {
        return Ok(Image::Other);
    }
    if start.get(4) != Some(&elf::ELFCLASS64) || start.get(5) != Some(&native_order()) {
        return Ok(Image::Foreign);
    }
    parse(&ReadCache::new(file)).map(Image::Elf).map_err(|error| error.to_string())
}

fn native_order() -> u8 {
    if cfg!(target_endian = "little") { elf::ELFDATA2LSB } else { elf::ELFDATA2MSB }
}

fn script(rest: &[u8]) -> Image {
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let interpreter = words.next().unwrap_or_default();
    Image::Script(PathBuf::from(interpreter), words.next().map(str::to_owned))
}

fn parse<'data, R: ReadRef<'data>>(data: R) -> object::Result<Elf> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let mut found = Elf::default();
    for segment in header.program_headers(endian, data)? {
        found.dynamic |= segment.p_type(endian) == elf::PT_INTERP;
    }
    let sections = header.sections(endian, data)?;
    if let Some((entries, link)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        // A shared library names no loader, but itself or what it needs.
        let mut tags = entries.iter().filter_map(|entry| entry.tag32(endian));
        found.dynamic |= tags.any(|tag| [elf::DT_NEEDED, elf::DT_SONAME].contains(&tag));
        for entry in entries.iter().filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED)) {
            let name = entry.val32(endian).and_then(|offset| strings.get(offset).ok());
            found.needed.extend(name.map(|name| String::from_utf8_lossy(name).into_owned()));
        }
    }
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
    for symbol in symbols.iter().filter(|symbol| symbol.is_undefined(endian)) {
        let name = symbol.name(endian, symbols.strings())?;
        found.imports.push(String::from_utf8_lossy(name).into_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn this_very_program_is_dynamic_and_takes_functions_from_libc() {
        let image = inspect(&std::env::current_exe().unwrap()).unwrap();
        let Image::Elf(found) = image else { panic!("{image:?}") };
        assert!(found.dynamic);
        assert!(found.needed.iter().any(|name| name == "libc.so.6"), "{:?}", found.needed);
        assert!(found.imports.iter().any(|name| name == "write"));
    }

    #[test]
    fn a_shared_library_is_dynamic_although_it_names_no_loader() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let library = paths.find(|path| path.contains("libgcc_s.so")).expect("every test has it");
        let image = inspect(library.as_ref()).unwrap();
        let Image::Elf(found) = image else { panic!("{image:?}") };
        assert!(found.dynamic);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"#! /usr/bin/env python3\nprint()\n").unwrap();
        let script = Image::Script("/usr/bin/env".into(), Some("python3".to_owned()));
        assert_eq!(inspect(file.path()), Ok(script));
    }

    #[test]
    fn broken_headers_are_errors_not_panics() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for len in [4, 5, 16, 63, 64, 100, 4096] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&whole[..len]).unwrap();
            let _ = inspect(file.path());
        }
        assert_eq!(inspect(Path::new("/etc/passwd")), Ok(Image::Other));
    }
}
