//! Reports trouble with a store to the user: lost data, a store that accepts nothing, and a store
//! that returns nothing. PUTs and GETs count separately, because a full store still returns data: a
//! further report that PUTs fail, or that GETs fail, comes only after one of them succeeded.

use crate::client::Client;
use nowait_image_format::{Answer, Operation};

/// How long a store may accept nothing, or return nothing, before the user gets a report.
const PATIENCE_NS: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// PUTs and deletions: the store accepts changes.
    Put,
    /// GETs and lists: the store returns data.
    Get,
}

impl Kind {
    pub(crate) fn of(operation: &Operation) -> Kind {
        match operation {
            Operation::PutIfAbsent { .. }
            | Operation::PutIfMatch { .. }
            | Operation::Delete { .. } => Kind::Put,
            Operation::Get { .. } | Operation::List { .. } => Kind::Get,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Kind::Put => "takes",
            Kind::Get => "gives",
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// The time at which the failures began; `None`: the last operation has not failed.
    since_ns: Option<u64>,
    is_said: bool,
}

#[derive(Debug)]
pub(crate) struct Trouble {
    shown: String,
    puts: State,
    gets: State,
}

impl Trouble {
    pub(crate) fn of(shown: String) -> Trouble {
        Trouble { shown, puts: State::default(), gets: State::default() }
    }

    pub(crate) fn note(&mut self, kind: Kind, answer: &Answer, now_ns: u64, client: &Client) {
        let (shown, verb) = (&self.shown, kind.verb());
        let state = if kind == Kind::Put { &mut self.puts } else { &mut self.gets };
        if *answer != Answer::Failed {
            if core::mem::take(state).is_said {
                client.say(&format!("{shown}: the store {verb} again"));
            }
            return;
        }
        let since_ns = *state.since_ns.get_or_insert(now_ns);
        if !state.is_said && now_ns - since_ns >= PATIENCE_NS {
            state.is_said = true;
            let why = client.last_error().unwrap_or_default();
            client.say(&format!("{shown}: the store {verb} nothing, trying again: {why}"));
        }
    }

    pub(crate) fn lost(&self, name: &str, what: &str, client: &Client) {
        let shown = &self.shown;
        client.say(&format!(
            "{shown}: {name} is {what}: its blocks cannot be read (nowait image check {shown})"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Place, StoreOptions};
    use std::sync::Mutex;
    use std::time::Duration;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn a_store_that_accepts_nothing_is_reported_once_until_it_accepts() {
        let url = "memory://trouble/vm".parse().unwrap();
        let place = Place::new(&url, &StoreOptions::default()).unwrap();
        let client = Client::new(place, Duration::from_secs(1))
            .telling(Some(|text| SAID.lock().unwrap().push(text.to_owned())));
        let mut trouble = Trouble::of("the image".to_owned());
        let mut note = |kind, is_good, second: u64| {
            let answer = if is_good { Answer::Missing } else { Answer::Failed };
            trouble.note(kind, &answer, second * 1_000_000_000, &client);
            core::mem::take(&mut *SAID.lock().unwrap()).join(", ")
        };
        use Kind::{Get, Put};
        // Neither a single failure nor failures that last less than ten seconds are reported.
        for (is_good, second) in [(false, 1), (true, 2), (false, 3), (false, 12)] {
            assert_eq!(note(Put, is_good, second), "");
        }
        assert_eq!(note(Get, true, 12), "");
        assert_eq!(note(Put, false, 13), "the image: the store takes nothing, trying again: ");
        assert_eq!([note(Put, false, 99), note(Get, true, 99)], ["", ""]);
        assert_eq!(note(Put, true, 100), "the image: the store takes again");
        assert_eq!(note(Put, true, 101), "");
        assert_eq!([note(Get, false, 102), note(Put, true, 112)], ["", ""]);
        assert_eq!(note(Get, false, 112), "the image: the store gives nothing, trying again: ");
    }
}
