//! The client's answers to operations on several stores, as the state machine receives these
//! answers.

use super::wrong::{Wrong, WrongStore};
use crate::client::Client;
use crate::folder::Folder;
use crate::place::Place;
use crate::probe::{Verdict, probe};
use nowait_image_format::{Answer, Key, Operation, Tag};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

fn client(store: Arc<dyn ObjectStore>) -> Client {
    let place = Place::in_store(store, "vm");
    Client::new(place, Duration::from_secs(20))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn ask<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

const KEY: Key = Key::Head;

fn put(body: &[u8]) -> Operation {
    Operation::PutIfAbsent { image: [1; 16], key: KEY, body: Arc::new(body.to_vec()) }
}

fn replace(body: &[u8], tag: &Tag) -> Operation {
    Operation::PutIfMatch { key: KEY, body: Arc::new(body.to_vec()), tag: tag.clone() }
}

fn get(range: Range<u64>) -> Operation {
    Operation::Get { of: None, image: [1; 16], key: KEY, range, data: None }
}

fn tag_of(answer: Answer) -> Tag {
    match answer {
        Answer::Put(tag) => tag,
        other => panic!("{other:?}"),
    }
}

async fn check(client: &Client) {
    assert_eq!(client.run(get(0..9)).await, Answer::Missing);
    let first = tag_of(client.run(put(b"hello")).await);
    assert_eq!(client.run(put(b"other")).await, Answer::Refused);
    for (range, expected) in [(0..5, &b"hello"[..]), (1..99, b"ello"), (5..6, b""), (99..200, b"")]
    {
        let (bytes, object_bytes, tag) = (expected.to_vec(), 5, first.clone());
        let got = client.run(get(range.clone())).await;
        assert_eq!(got, Answer::Got { bytes, object_bytes, tag }, "{range:?}");
    }
    let second = tag_of(client.run(replace(b"again", &first)).await);
    assert_ne!(first, second);
    assert_eq!(client.run(replace(b"third", &first)).await, Answer::Refused);
    let mut tags = vec![first, second.clone()];
    let mut tag = second;
    for _ in 0..20 {
        tag = tag_of(client.run(replace(b"again", &tag)).await);
        assert!(!tags.contains(&tag), "{tag} comes again");
        tags.push(tag.clone());
    }
    assert_eq!(client.run(Operation::Delete { image: [1; 16], key: KEY }).await, Answer::Deleted);
    assert_eq!(client.run(Operation::Delete { image: [1; 16], key: KEY }).await, Answer::Deleted);
    assert!(matches!(client.run(replace(b"x", &tag)).await, Answer::Refused | Answer::Failed));
    assert_eq!(probe(client, "1").await, Verdict::Good);
    let gone = client.place().store.head(&Path::from("vm/probe/1-0")).await;
    assert!(matches!(gone, Err(object_store::Error::NotFound { .. })));
}

#[test]
fn a_store_in_memory_answers_as_it_must() {
    ask(check(&client(Arc::new(InMemory::new()))));
}

#[test]
fn a_folder_answers_as_it_must() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let store = Folder::open(folder.path().to_str().unwrap()).unwrap();
    ask(check(&client(Arc::new(store))));
}

#[test]
fn of_many_writers_one_replaces_an_object_in_a_folder() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let open = || Folder::open(folder.path().to_str().unwrap()).unwrap();
    let tag = tag_of(ask(client(Arc::new(open())).run(put(b"hello"))));
    let won = std::thread::scope(|scope| {
        let write = |number: u8| {
            let (store, tag) = (open(), tag.clone());
            scope.spawn(move || ask(client(Arc::new(store)).run(replace(&[number], &tag))))
        };
        let writers: Vec<_> = (0..8).map(write).collect();
        let answers = writers.into_iter().map(|writer| writer.join().unwrap());
        answers.filter(|answer| matches!(answer, Answer::Put(_))).count()
    });
    assert_eq!(won, 1);
}

#[test]
fn a_store_that_ignores_conditions_is_found_out() {
    for (wrong, word) in
        [(Wrong::IgnoresCreate, "If-None-Match"), (Wrong::IgnoresUpdate, "If-Match")]
    {
        match ask(probe(&client(Arc::new(WrongStore::new(wrong))), "1")) {
            Verdict::Bad(why) => assert!(why.contains("ignores") && why.contains(word), "{why}"),
            other => panic!("{wrong:?}: {other:?}"),
        }
    }
}

/// If the answer to a PUT is lost, a client may repeat the PUT. The store then answers that the
/// object exists.
#[test]
fn an_object_that_is_there_already_says_nothing_of_the_store() {
    let client = client(Arc::new(InMemory::new()));
    let make = |object: usize| {
        let path = Path::from(format!("vm/probe/1-{object}"));
        let store = client.place().store.clone();
        ask(async move { store.put(&path, "one".into()).await }).unwrap();
    };
    make(0);
    assert_eq!(ask(probe(&client, "1")), Verdict::Good);
    (0..4).for_each(make);
    assert!(matches!(ask(probe(&client, "1")), Verdict::Bad(why) if why.contains("refuses")));
}

#[test]
fn a_body_of_another_length_is_no_answer() {
    for wrong in [Wrong::Cut, Wrong::Endless, Wrong::OtherRange] {
        let store = Arc::new(WrongStore::new(Wrong::Nothing));
        let client = client(store.clone());
        ask(client.run(put(&[1; 100])));
        store.set(wrong);
        assert_eq!(ask(client.run(get(0..100))), Answer::Failed, "{wrong:?}");
        assert!(client.last_error().is_some());
    }
}

#[test]
fn a_request_that_collides_or_panics_has_failed_and_is_not_refused() {
    for wrong in [Wrong::Conflict, Wrong::Panics] {
        let client = client(Arc::new(WrongStore::new(wrong)));
        assert_eq!(ask(client.run(put(b"x"))), Answer::Failed, "{wrong:?}");
    }
}

#[test]
fn an_object_that_azure_has_already_is_refused() {
    let client = client(Arc::new(WrongStore::new(Wrong::AlreadyExists)));
    assert_eq!(ask(client.run(put(b"x"))), Answer::Refused);
}

#[test]
fn a_store_that_never_answers_has_failed_after_its_time() {
    let place = Place::in_store(Arc::new(WrongStore::new(Wrong::Silent)), "vm");
    let client = Client::new(place, Duration::from_millis(10));
    assert_eq!(ask(client.run(put(b"x"))), Answer::Failed);
    assert_eq!(ask(client.run(get(0..1))), Answer::Failed);
    assert!(client.last_error().unwrap().contains("10ms"));
}

#[test]
fn an_error_is_shown_in_one_line() {
    let client = client(Arc::new(WrongStore::new(Wrong::Denies)));
    assert_eq!(ask(client.run(put(b"x"))), Answer::Failed);
    assert!(client.is_hopeless() && !client.last_error().unwrap().contains('\n'));
}
