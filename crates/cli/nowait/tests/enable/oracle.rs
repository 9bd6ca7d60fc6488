//! systemd prints the environments that services would get, with and without the drop-ins of
//! `nowait enable`. The drop-in must only put nowait's library in front and set the variables of
//! its flags.

use crate::system::{ETC, LIB, LIBRARY, System};
use nowait_block::skip::note_skip_here;
use std::collections::BTreeMap;

const UNITS: usize = 60;

struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

const LINES: &[&str] = &[
    "Environment=LD_PRELOAD=/a.so",
    "Environment=\"LD_PRELOAD=/b.so /c.so\" B=1",
    "Environment='LD_PRELOAD=/d.so:/e.so'",
    "Environment=A=1 \"B=2 3\" 'C=4 \"5\"' LD_PRELOAD=/f.so",
    "Environment = LD_PRELOAD=/g\\x2eso  A=\\\"x\\\"",
    "Environment=A=\\\n# a comment between\n  LD_PRELOAD=/h.so",
    "Environment=\"LD_PRELOAD=/i.so:\\\n  /j.so\" D=%%",
    "Environment=LD_PRELOAD=/%p/%i.so E=%i",
    "Environment=LD_PRELOAD=",
    "Environment=",
    "Environment=LD_PRELOAD=/k.so \"unended",
    "Environment=LD_PRELOAD=/l.so F=\\q G=2",
    "; Environment=LD_PRELOAD=/m.so",
    "[Unit]\nEnvironment=LD_PRELOAD=/n.so\n[Service]",
    "Environment=LD_PRELOADED=/o.so",
    "Environment=B=é\\u00e9 C",
    "UnsetEnvironment=",
    "Environment=LD_PRELOAD=/usr/lib/p\\163.so:",
];

fn file(chance: &mut Chance) -> String {
    let lines = chance.below(4);
    let lines: Vec<_> = (0..lines).map(|_| chance.of(LINES)).collect();
    format!("[Service]\n{}\n", lines.join("\n"))
}

fn unit(system: &System, number: usize, chance: &mut Chance) -> String {
    let (file_name, name, folders) = if chance.below(2) == 0 {
        let template = format!("t{number}-x@.service");
        let name = format!("t{number}-x@i{number}.service");
        let folders = vec![name.clone(), template.clone(), format!("t{number}-@.service")];
        (template, name, folders)
    } else {
        let name = format!("u{number}-x-y.service");
        let folders =
            vec![name.clone(), format!("u{number}-x-.service"), format!("u{number}-.service")];
        (name.clone(), name, folders)
    };
    let exec = "ExecStart=/usr/sbin/daemon\n";
    system.file(&format!("{LIB}/{file_name}"), &format!("{}{exec}", file(chance)));
    if chance.below(4) == 0 {
        system.file(&format!("{ETC}/{file_name}"), &format!("{}{exec}", file(chance)));
    }
    for _ in 0..chance.below(4) {
        let place = chance.of(&[ETC, LIB]);
        let folder = &folders[chance.below(folders.len())];
        let conf = chance.of(&["10-a.conf", "20.conf", "override.conf", "README"]);
        let path = format!("{place}/{folder}.d/{conf}");
        if system.path(&path).exists() {
            continue;
        }
        if chance.below(6) == 0 {
            system.link(&path, "/dev/null");
        } else {
            system.file(&path, &file(chance));
        }
    }
    name
}

#[test]
fn the_environment_is_systemd_s_with_ours_in_front() {
    let system = System::new();
    let mut chance = Chance(0x006e_6f77_6169_7421);
    let units: Vec<_> = (0..UNITS).map(|number| unit(&system, number, &mut chance)).collect();
    let Some(before) = system.environments(&units) else {
        return note_skip_here("needs systemd");
    };
    for unit in &units {
        let (code, _, err) = system.nowait(&["enable", unit, "--submit", "offload"]);
        assert_eq!((code, err.as_str()), (0, ""), "{unit}");
    }
    let after = system.environments(&units).expect("systemd");
    let mut kept = 0;
    for unit in &units {
        let of = |all: &BTreeMap<String, Vec<(String, String)>>| -> BTreeMap<String, String> {
            all.get(unit).cloned().unwrap_or_default().into_iter().collect()
        };
        let mut expected = of(&before);
        let theirs = expected.remove("LD_PRELOAD").unwrap_or_default();
        let theirs = theirs.split([':', ' ']).filter(|entry| !entry.is_empty());
        let value: Vec<_> = std::iter::once(LIBRARY).chain(theirs).collect();
        kept += usize::from(value.len() > 1);
        expected.insert("LD_PRELOAD".to_owned(), value.join(":"));
        expected.insert("NOWAIT_SUBMIT".to_owned(), "offload".to_owned());
        assert_eq!(of(&after), expected, "{unit}");
    }
    assert!((10..UNITS - 10).contains(&kept), "{kept} of {UNITS} had one of their own");
    for unit in &units {
        assert_eq!(system.nowait(&["disable", unit]).0, 0);
    }
    assert_eq!(system.environments(&units).expect("systemd"), before);
}
