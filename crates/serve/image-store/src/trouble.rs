//! What people should know of a store, each thing once: what is lost, that it takes nothing, and
//! that it gives nothing. A store that is full still gives.

use crate::client::Client;
use nowait_image_format::{Answer, Operation};

/// A store that has taken or given nothing for so long is spoken of.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To take something.
    Put,
    /// To give something.
    Get,
}

impl Kind {
    /// Returns the kind of an operation.
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

/// Whether operations of a kind go well.
#[derive(Debug, Default)]
struct State {
    /// Since when none has; `None`: the last one has.
    since_ns: Option<u64>,
    is_said: bool,
}

/// The trouble with the store of an image.
#[derive(Debug)]
pub(crate) struct Trouble {
    shown: String,
    puts: State,
    gets: State,
}

impl Trouble {
    /// There is none yet with an image that people call so.
    pub(crate) fn of(shown: String) -> Trouble {
        Trouble { shown, puts: State::default(), gets: State::default() }
    }

    /// Notes an answer of the store.
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
            client.say(&format!("{shown}: the store {verb} nothing, and is asked on: {why}"));
        }
    }

    /// Notes an object of which something is lost.
    pub(crate) fn lost(&self, name: &str, what: &str, client: &Client) {
        let shown = &self.shown;
        client.say(&format!(
            "{shown}: {name} is {what}: what it has cannot be read (nowait image check {shown})"
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
    fn a_store_that_takes_nothing_is_spoken_of_once_until_it_does_whatever_it_gives() {
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
        // Neither one that fails, nor some that fail between others that do not.
        for (is_good, second) in [(false, 1), (true, 2), (false, 3), (false, 12)] {
            assert_eq!(note(Put, is_good, second), "");
        }
        assert_eq!(note(Get, true, 12), "");
        assert_eq!(note(Put, false, 13), "the image: the store takes nothing, and is asked on: ");
        assert_eq!([note(Put, false, 99), note(Get, true, 99)], ["", ""]);
        assert_eq!(note(Put, true, 100), "the image: the store takes again");
        assert_eq!(note(Put, true, 101), "");
        assert_eq!([note(Get, false, 102), note(Put, true, 112)], ["", ""]);
        assert_eq!(note(Get, false, 112), "the image: the store gives nothing, and is asked on: ");
    }
}
