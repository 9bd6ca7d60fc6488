//! The names of services. Source: systemd.unit(5).

use std::fmt;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitName {
    /// The part before `@` or `.service`.
    prefix: String,
    /// The part after `@`: empty for a template, `None` without `@`.
    instance: Option<String>,
}

impl UnitName {
    /// Parses the name of a service, with or without `.service`. An error has one line.
    pub(crate) fn new(text: &str) -> Result<UnitName, String> {
        const OTHERS: [&str; 10] = [
            "socket",
            "timer",
            "target",
            "mount",
            "automount",
            "path",
            "slice",
            "scope",
            "device",
            "swap",
        ];
        if let Some((name, kind)) = text.rsplit_once('.')
            && OTHERS.contains(&kind)
        {
            let advice = format!("name the service that it starts, such as {name}.service");
            return Err(format!("{text}: a {kind} unit starts no program itself; {advice}"));
        }
        let name = text.strip_suffix(".service").unwrap_or(text);
        let fine = |letter: char| letter.is_ascii_alphanumeric() || ":-_.\\@".contains(letter);
        let (prefix, instance) = match name.split_once('@') {
            Some((prefix, instance)) => (prefix, Some(instance.to_owned())),
            None => (name, None),
        };
        if prefix.is_empty() || !name.chars().all(fine) || name.len() > 247 {
            return Err(format!(
                "{text}: not the name of a unit; name one, such as mariadb.service"
            ));
        }
        Ok(UnitName { prefix: prefix.to_owned(), instance })
    }

    pub(crate) fn of_file(path: &Path) -> Option<UnitName> {
        let name = path.file_name()?.to_str()?;
        name.ends_with(".service").then(|| UnitName::new(name).ok()).flatten()
    }

    pub(crate) fn template(&self) -> Option<UnitName> {
        let instance = self.instance.as_ref().filter(|instance| !instance.is_empty());
        instance.map(|_| UnitName { instance: Some(String::new()), ..self.clone() })
    }

    pub(crate) fn is_template(&self) -> bool {
        self.instance.as_ref().is_some_and(String::is_empty)
    }

    /// Returns the unit that a link with this name means, if the link leads to `other`: `other`
    /// itself or, if `other` is a template and this name has an instance, that instance of `other`.
    pub(crate) fn led_to(&self, other: UnitName) -> UnitName {
        match &self.instance {
            Some(instance) if other.is_template() => {
                UnitName { instance: Some(instance.clone()), ..other }
            }
            _ => other,
        }
    }

    /// Returns the names whose folders `NAME.d` change this unit, the most specific first: its own,
    /// its template's, and the same for each beginning of its prefix that ends with a dash.
    pub(crate) fn drop_in_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut prefix = self.prefix.as_str();
        loop {
            let name = UnitName { prefix: prefix.to_owned(), instance: self.instance.clone() };
            names.push(name.to_string());
            names.extend(name.template().map(|template| template.to_string()));
            let shorter = prefix.trim_end_matches('-');
            match shorter.rfind('-') {
                Some(dash) => prefix = &prefix[..=dash],
                None => return names,
            }
        }
    }

    /// Resolves `%%`, `%p`, `%i`, `%I`, `%n` and `%N` in `text`. Returns `None` if `text` has a
    /// specifier that only systemd can resolve, or that has no value in a template.
    pub(crate) fn expand(&self, text: &str) -> Option<String> {
        let mut expanded = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                expanded.push(letter);
                continue;
            }
            let instance = self.instance.as_deref().unwrap_or_default();
            match letters.next()? {
                '%' => expanded.push('%'),
                'p' => expanded.push_str(&self.prefix),
                'i' if !self.is_template() => expanded.push_str(instance),
                'I' if !self.is_template() && !instance.contains('\\') => {
                    expanded.push_str(&instance.replace('-', "/"));
                }
                'n' if !self.is_template() => expanded.push_str(&self.to_string()),
                'N' if !self.is_template() => {
                    expanded.push_str(self.to_string().trim_end_matches(".service"));
                }
                _ => return None,
            }
        }
        Some(expanded)
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.instance {
            Some(instance) => write!(f, "{}@{instance}.service", self.prefix),
            None => write!(f, "{}.service", self.prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> UnitName {
        UnitName::new(text).unwrap()
    }

    #[test]
    fn names_of_services_are_taken_and_others_refused_in_one_line() {
        for (text, whole) in [
            ("mariadb", "mariadb.service"),
            ("mariadb.service", "mariadb.service"),
            ("dbus-org.x", "dbus-org.x.service"),
            ("a@", "a@.service"),
            ("a@b@c.service", "a@b@c.service"),
        ] {
            assert_eq!(name(text).to_string(), whole);
        }
        for wrong in ["", ".service", "@x", "a/b", "a b", "x.timer", "x.socket", "/a.service"] {
            let error = UnitName::new(wrong).unwrap_err();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert!(UnitName::new("x.timer").unwrap_err().contains("x.service"));
    }

    #[test]
    fn the_most_particular_drop_ins_come_first() {
        assert_eq!(name("a").drop_in_names(), ["a.service"]);
        let names = ["a-b-c.service", "a-b-.service", "a-.service"];
        assert_eq!(name("a-b-c").drop_in_names(), names);
        let names = ["a-b@1.service", "a-b@.service", "a-@1.service", "a-@.service"];
        assert_eq!(name("a-b@1").drop_in_names(), names);
        assert_eq!(name("a@").drop_in_names(), ["a@.service"]);
    }

    #[test]
    fn specifiers_are_resolved_where_the_name_tells_them() {
        let instance = name("a@b-c");
        assert_eq!(instance.expand("/x/%i/%I/%p/%n/%%").unwrap(), "/x/b-c/b/c/a/a@b-c.service/%");
        assert_eq!(instance.expand("%h"), None);
        assert_eq!(name("a@").expand("/%i"), None);
        assert_eq!(name("a@").expand("/%p"), Some("/a".to_owned()));
    }
}
