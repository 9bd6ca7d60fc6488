//! A service: its unit file merged with all drop-ins. Source: systemd.unit(5).

use super::{Assignment, Place, UnitName, parse, words};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Unit {
    /// The unit's own name, even if the user named the unit by an alias.
    pub(crate) name: UnitName,
    /// The files that systemd would read, in its reading order: the unit file first.
    pub(crate) sources: Vec<Source>,
    /// The variables that the manager sets for all services.
    defaults: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    assignments: Vec<Assignment>,
}

impl Source {
    pub(crate) fn read(place: &Place, path: PathBuf) -> Result<Source, String> {
        let read = fs::read(place.follow(&path));
        let bytes = read.map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let assignments = parse(&text);
        Ok(Source { path, text, assignments })
    }

    pub(crate) fn values(&self, key: &'static str) -> impl Iterator<Item = &str> {
        let wanted = move |it: &&Assignment| it.section == "Service" && it.key == key;
        self.assignments.iter().filter(wanted).map(|it| it.value.as_str())
    }

    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        variables(self.values("Environment"))
    }
}

impl Unit {
    /// Reads the unit and its drop-ins. Follows a link to another unit, and refuses a masked unit.
    pub(crate) fn load(place: &Place, name: &UnitName) -> Result<Unit, String> {
        let (name, file) = find(place, name)?;
        let mut sources = vec![Source::read(place, file)?];
        for path in drop_ins(place, &name) {
            sources.push(Source::read(place, path)?);
        }
        Ok(Unit { name, sources, defaults: defaults(place) })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.sources[0].path
    }

    /// An empty value clears the values before it.
    pub(crate) fn list(&self, key: &'static str) -> Vec<&str> {
        let mut values = Vec::new();
        for value in self.sources.iter().flat_map(|source| source.values(key)) {
            if value.is_empty() { values.clear() } else { values.push(value) }
        }
        values
    }

    /// Returns the last value of a key of `[Service]`; `None` if that value is empty.
    pub(crate) fn value(&self, key: &'static str) -> Option<&str> {
        let values = self.sources.iter().flat_map(|source| source.values(key));
        values.last().filter(|value| !value.is_empty())
    }

    pub(crate) fn is_on(&self, key: &'static str) -> bool {
        let on = |value: &str| ["1", "yes", "y", "true", "t", "on"].contains(&value);
        self.value(key).is_some_and(|value| on(&value.to_ascii_lowercase()))
    }

    /// Includes the manager's variables that the unit does not set. Specifiers stay unresolved.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let mut all = self.defaults.clone();
        all.extend(variables(self.list("Environment")));
        all
    }
}

fn defaults(place: &Place) -> BTreeMap<String, String> {
    let mut lines = Vec::new();
    for path in place.settings() {
        let text = fs::read_to_string(place.follow(&path)).unwrap_or_default();
        let wanted = |it: &Assignment| it.section == "Manager" && it.key == "DefaultEnvironment";
        for line in parse(&text).into_iter().filter(wanted) {
            if line.value.is_empty() { lines.clear() } else { lines.push(line.value) }
        }
    }
    variables(lines.iter().map(String::as_str))
}

fn variables<'a>(lines: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    let words = lines.into_iter().flat_map(words);
    let pairs = words.filter_map(|word| {
        word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

fn find(place: &Place, asked: &UnitName) -> Result<(UnitName, PathBuf), String> {
    let mut name = asked.clone();
    // About as many links as systemd follows; the limit also ends a circle of links.
    for _ in 0..8 {
        let names = [Some(name.clone()), name.template()];
        let Some(path) = names.into_iter().flatten().find_map(|name| lie(place, &name)) else {
            break;
        };
        let file = place.follow(&path);
        let is_empty = fs::metadata(&file).is_ok_and(|it| it.len() == 0 || !it.is_file());
        // A system below `--root` may have no /dev/null.
        if is_empty || file.ends_with("dev/null") {
            let advice = format!("systemctl unmask {name}, then enable it again");
            return Err(format!("{name}: masked by {}; {advice}", path.display()));
        }
        let target = link_to(&place.outside(&path));
        match target.filter(|target| Some(target) != UnitName::of_file(&path).as_ref()) {
            Some(target) => name = name.led_to(target),
            None => return Ok((name, path)),
        }
    }
    let advice = "look at systemctl list-unit-files --type=service";
    Err(format!("{asked}: no such unit in {}, …; {advice}", place.own().display()))
}

fn lie(place: &Place, name: &UnitName) -> Option<PathBuf> {
    let paths = place.folders().iter().map(|folder| folder.join(name.to_string()));
    paths.into_iter().find(|path| fs::symlink_metadata(place.outside(path)).is_ok())
}

/// Returns the drop-ins by file name. Among files of one name, the folder with precedence decides,
/// then the more specific name of the unit. Aliases, and then `service.d`, come after all of these.
fn drop_ins(place: &Place, name: &UnitName) -> Vec<PathBuf> {
    let mut found = BTreeMap::new();
    let mut look = |names: &[String]| {
        for folder in place.folders() {
            for name in names {
                let folder = folder.join(format!("{name}.d"));
                let entries = fs::read_dir(place.follow(&folder)).into_iter().flatten().flatten();
                for file in entries.map(|entry| entry.file_name()) {
                    if Path::new(&file).extension().is_some_and(|end| end == "conf") {
                        let path = folder.join(&file);
                        found.entry(file).or_insert(path);
                    }
                }
            }
        }
    };
    look(&name.drop_in_names());
    for alias in aliases(place, name) {
        look(&alias.drop_in_names());
    }
    look(&["service".to_owned()]);
    // A link to /dev/null hides the drop-ins of the same name.
    let is_file = |path: &PathBuf| place.follow(path).is_file();
    found.into_values().filter(is_file).collect()
}

fn aliases(place: &Place, name: &UnitName) -> Vec<UnitName> {
    let entries =
        place.folders().iter().filter_map(|folder| fs::read_dir(place.follow(folder)).ok());
    let mut found = Vec::new();
    for entry in entries.flatten().flatten() {
        let alias = UnitName::of_file(&entry.path());
        if let (Some(alias), Some(target)) = (alias, link_to(&entry.path()))
            && target == *name
            && alias != *name
            && !found.contains(&alias)
        {
            found.push(alias);
        }
    }
    found
}

fn link_to(path: &Path) -> Option<UnitName> {
    UnitName::of_file(&fs::read_link(path).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    const ETC: &str = "etc/systemd/system";
    const LIB: &str = "usr/lib/systemd/system";

    fn system(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match text.strip_prefix("-> ") {
                Some(target) => symlink(target, path).unwrap(),
                None => fs::write(path, text).unwrap(),
            }
        }
        root
    }

    fn load(root: &TempDir, name: &str) -> Result<Unit, String> {
        Unit::load(&Place::system(root.path()), &UnitName::new(name).unwrap())
    }

    fn files(unit: &Unit) -> Vec<&str> {
        unit.sources.iter().map(|source| source.path.to_str().unwrap()).collect()
    }

    #[test]
    fn a_unit_of_the_administrator_hides_the_distribution_s() {
        let root = system(&[
            (&format!("{LIB}/a.service"), "[Service]\nUser=b"),
            (&format!("{ETC}/a.service"), "[Service]\nUser=a"),
        ]);
        let unit = load(&root, "a").unwrap();
        assert_eq!(files(&unit), ["/etc/systemd/system/a.service"]);
        assert_eq!(unit.value("User"), Some("a"));
    }

    #[test]
    fn drop_ins_are_read_by_name_wherever_they_lie() {
        let service = "[Service]\n";
        let root = system(&[
            (&format!("{LIB}/a-b@.service"), service),
            (&format!("{LIB}/a-b@1.service.d/20.conf"), service),
            (&format!("{ETC}/a-b@.service.d/10.conf"), service),
            // The drop-in of the same name in the instance's folder hides it.
            (&format!("{LIB}/service.d/20.conf"), service),
            (&format!("{ETC}/service.d/30.conf"), service),
            (&format!("{LIB}/a-b@.service.d/40.conf"), service),
            (&format!("{ETC}/a-b@.service.d/40.conf"), "-> /dev/null"),
            (&format!("{LIB}/a-@.service.d/05.conf"), service),
            (&format!("{LIB}/a-b@.service.d/README"), service),
        ]);
        let expected = [
            "/usr/lib/systemd/system/a-b@.service",
            "/usr/lib/systemd/system/a-@.service.d/05.conf",
            "/etc/systemd/system/a-b@.service.d/10.conf",
            "/usr/lib/systemd/system/a-b@1.service.d/20.conf",
            "/etc/systemd/system/service.d/30.conf",
        ];
        assert_eq!(files(&load(&root, "a-b@1").unwrap()), expected);
    }

    #[test]
    fn a_link_is_another_name_and_its_drop_ins_count() {
        let root = system(&[
            (&format!("{LIB}/mariadb.service"), "[Service]\n"),
            (&format!("{LIB}/mysql.service"), "-> mariadb.service"),
            (&format!("{ETC}/mysql.service.d/a.conf"), "[Service]\nUser=c"),
            (&format!("{ETC}/x@.service"), "-> /usr/lib/systemd/system/y@.service"),
            (&format!("{LIB}/y@.service"), "[Service]\n"),
            (&format!("{ETC}/z.service"), "-> /opt/z.service"),
            ("opt/z.service", "[Service]\nUser=z"),
        ]);
        for name in ["mysql", "mariadb"] {
            let unit = load(&root, name).unwrap();
            assert_eq!(unit.name.to_string(), "mariadb.service");
            assert_eq!(unit.value("User"), Some("c"));
        }
        assert_eq!(load(&root, "x@1").unwrap().name.to_string(), "y@1.service");
        assert_eq!(load(&root, "z").unwrap().value("User"), Some("z"));
    }

    #[test]
    fn lists_are_cleared_and_switches_are_the_last_one_s() {
        let root = system(&[
            (&format!("{LIB}/a.service"), "[Service]\nEnvironment=A=1 B=1\nExecStart=/a\nX=yes"),
            (
                &format!("{ETC}/a.service.d/a.conf"),
                "[Service]\nEnvironment=B=2 \"C=3 4\"\nExecStart=\nExecStart=/b\nX=off\n\
                 [Unit]\nExecStart=/c",
            ),
        ]);
        let unit = load(&root, "a").unwrap();
        let environment: Vec<_> = unit.environment().into_iter().collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(environment, [pair("A", "1"), pair("B", "2"), pair("C", "3 4")]);
        assert_eq!(unit.list("ExecStart"), ["/b"]);
        assert!(!unit.is_on("X"));
    }

    #[test]
    fn what_the_manager_sets_for_all_services_is_behind_the_unit_s_own() {
        let root = system(&[
            (&format!("{LIB}/a.service"), "[Service]\nEnvironment=\nEnvironment=A=unit"),
            ("etc/systemd/system.conf", "[Manager]\nDefaultEnvironment=A=1 LD_PRELOAD=/x.so"),
            ("usr/lib/systemd/system.conf", "[Manager]\nDefaultEnvironment=A=hidden D=4"),
            ("usr/lib/systemd/system.conf.d/b.conf", "[Manager]\nDefaultEnvironment='B=2 3'"),
            ("etc/systemd/system.conf.d/c.conf", "[Service]\nDefaultEnvironment=C=3"),
        ]);
        let environment: Vec<_> = load(&root, "a").unwrap().environment().into_iter().collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [pair("A", "unit"), pair("B", "2 3"), pair("LD_PRELOAD", "/x.so")];
        assert_eq!(environment, expected);
        fs::write(
            root.path().join("etc/systemd/system.conf.d/z.conf"),
            "[Manager]\nDefaultEnvironment=",
        )
        .unwrap();
        let environment = load(&root, "a").unwrap().environment();
        assert_eq!(environment.into_keys().collect::<Vec<_>>(), ["A"]);
    }

    #[test]
    fn a_masked_or_missing_unit_is_refused_with_advice() {
        let root = system(&[
            (&format!("{ETC}/a.service"), "-> /dev/null"),
            (&format!("{LIB}/a.service"), "[Service]\n"),
            (&format!("{ETC}/b.service"), ""),
            (&format!("{ETC}/c.service"), "-> d.service"),
            (&format!("{ETC}/d.service"), "-> c.service"),
        ]);
        for (name, what) in [("a", "unmask"), ("b", "unmask"), ("c", "no such"), ("e", "no such")] {
            let error = load(&root, name).unwrap_err();
            assert!(error.contains(what) && error.lines().count() == 1, "{error}");
        }
    }
}
