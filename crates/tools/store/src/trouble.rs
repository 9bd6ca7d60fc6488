//! What people should know of a store, each thing once: what is lost, and that it takes nothing.

use crate::client::Client;
use nowait_log::Answer;

/// A store that has answered nothing well for so long is spoken of.
const PATIENCE_NS: u64 = 10_000_000_000;

/// The trouble with the store of an image.
#[derive(Debug)]
pub(crate) struct Trouble {
    shown: String,
    /// Since when no operation has gone well; `None`: the last one has.
    since_ns: Option<u64>,
    is_said: bool,
}

impl Trouble {
    /// There is none yet with an image that people call so.
    pub(crate) fn of(shown: String) -> Trouble {
        Trouble { shown, since_ns: None, is_said: false }
    }

    /// Notes an answer of the store.
    pub(crate) fn note(&mut self, answer: &Answer, now_ns: u64, client: &Client) {
        let Trouble { shown, since_ns, is_said } = self;
        if *answer != Answer::Failed {
            if core::mem::take(is_said) {
                client.say(&format!("{shown}: the store answers again"));
            }
            *since_ns = None;
            return;
        }
        let since_ns = *since_ns.get_or_insert(now_ns);
        if !*is_said && now_ns - since_ns >= PATIENCE_NS {
            *is_said = true;
            let why = client.last_error().unwrap_or_default();
            client.say(&format!(
                "{shown}: the store takes and gives nothing, and is asked on: {why}"
            ));
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
    fn a_store_that_takes_nothing_is_spoken_of_once_until_it_answers() {
        let url = "memory://trouble/vm".parse().unwrap();
        let place = Place::new(&url, &StoreOptions::default()).unwrap();
        let client = Client::new(place, Duration::from_secs(1))
            .telling(Some(|text| SAID.lock().unwrap().push(text.to_owned())));
        let mut trouble = Trouble::of("the image".to_owned());
        let mut note = |answer, second: u64| {
            trouble.note(&answer, second * 1_000_000_000, &client);
            core::mem::take(&mut *SAID.lock().unwrap()).len()
        };
        let good = Answer::Deleted;
        // Neither one that fails, nor some that fail between others that do not.
        assert_eq!(
            [note(Answer::Failed, 1), note(good.clone(), 2), note(Answer::Failed, 3)],
            [0; 3]
        );
        assert_eq!([note(Answer::Failed, 12), note(Answer::Failed, 13)], [0, 1]);
        assert_eq!([note(Answer::Failed, 99), note(good.clone(), 100), note(good, 101)], [0, 1, 0]);
    }
}
