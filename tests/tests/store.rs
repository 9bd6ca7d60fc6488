//! The object stores of the image tests, and the proxy before them, behave as those tests assume.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use nowait_tests::skip;
use nowait_tests::store_proxy::{Behaviour, FAULTS, Fault, StoreProxy};
use nowait_tests::stores::{Kind, Store};

const NONE_THERE: &str = "If-None-Match: *";
const PATIENCE: Duration = Duration::from_mins(1);

fn store(kind: Kind) -> Option<Store> {
    skip::unless(skip::missing_program(&["curl"]))?;
    skip::unless(Store::start(kind))
}

fn tag(store: &Store, key: &str) -> String {
    let listed = store
        .request("GET", &format!("?list-type=2&prefix={}", key.replace('/', "%2F")), &[], b"")
        .text();
    let tag = listed.split("<ETag>").nth(1).and_then(|rest| rest.split("</ETag>").next());
    let tag = tag.unwrap_or_else(|| panic!("no tag in {listed}")).replace("&quot;", "");
    format!("If-Match: \"{}\"", tag.trim_matches('"').replace("&#34;", ""))
}

fn takes_conditions_at_their_word(kind: Kind) {
    let Some(store) = store(kind) else { return };
    assert_eq!(store.request("PUT", "head", &[NONE_THERE], b"one").status, 200);
    assert_eq!(store.request("PUT", "head", &[NONE_THERE], b"two").status, 412, "it is there");
    let first = tag(&store, "head");
    assert_eq!(store.request("PUT", "head", &[&first], b"three").status, 200);
    assert_eq!(store.request("PUT", "head", &[&first], b"four").status, 412, "it has changed");
    assert_eq!(store.request("GET", "head", &[], b"").text(), "three");
    let part = store.request("GET", "head", &["Range: bytes=1-2"], b"");
    assert_eq!((part.status, part.text()), (206, "hr".to_owned()));
    assert_eq!(store.request("DELETE", "head", &[], b"").status, 204);
    assert_eq!(store.request("GET", "head", &[], b"").status, 404);
}

#[test]
fn moto_takes_conditions_at_their_word() {
    takes_conditions_at_their_word(Kind::Moto);
}

#[test]
fn versitygw_takes_conditions_at_their_word() {
    takes_conditions_at_their_word(Kind::Versitygw);
}

#[test]
fn versitygw_has_what_it_acknowledged_after_a_kill() {
    let Some(mut store) = store(Kind::Versitygw) else { return };
    let body: Vec<u8> = (0..300_000_u32).map(|i| (i * 7) as u8).collect();
    assert_eq!(store.request("PUT", "a/b", &[NONE_THERE], &body).status, 200);
    let before = tag(&store, "a/b");
    store.kill();
    store.start_again();
    assert!(store.request("GET", "a/b", &[], b"").body == body);
    assert_eq!(tag(&store, "a/b"), before);
    assert_eq!(store.request("PUT", "a/b", &[NONE_THERE], b"").status, 412);
}

#[test]
fn versitygw_makes_no_object_of_half_a_request() {
    let Some(store) = store(Kind::Versitygw) else { return };
    let proxy = StoreProxy::start(store.address(), 1);
    let faults = vec![Fault::Halve];
    proxy.behave(Behaviour { faults, per_mille: 1000, ..Behaviour::default() });
    let body = vec![7; 100_000];
    assert!(store.request_at(proxy.address(), "PUT", "half", &[NONE_THERE], &body).is_none());
    assert_eq!(store.request("GET", "half", &[], b"").status, 404);
}

#[test]
fn a_proxy_does_each_fault_as_it_says() {
    let Some(store) = store(Kind::Moto) else { return };
    let proxy = StoreProxy::start(store.address(), 1);
    for fault in FAULTS {
        let key = format!("{fault:?}");
        proxy.behave(Behaviour { faults: vec![fault], per_mille: 1000, ..Behaviour::default() });
        let put = store.request_at(proxy.address(), "PUT", &key, &[NONE_THERE], b"a body of it");
        let status = put.map(|answer| answer.status);
        let (expected, is_done) = match fault {
            Fault::Cut | Fault::Halve => (None, false),
            Fault::Fail => (Some(500), false),
            Fault::SlowDown => (Some(503), false),
            Fault::Forget => (None, true),
            Fault::Deny => (Some(500), true),
            Fault::Repeat => (Some(412), true),
            Fault::Truncate => (Some(200), true),
        };
        assert_eq!(status, expected, "{fault:?}");
        let found = store.request("GET", &key, &[], b"");
        assert_eq!(found.status == 200, is_done, "{fault:?}: {}", found.text());
        assert!(!is_done || found.body == b"a body of it", "{fault:?}");
        assert_eq!(proxy.counts().faults.get(&fault), Some(&1));
    }
    let get = store.request_at(proxy.address(), "GET", "Truncate", &[], b"");
    assert!(get.is_none(), "half a body is no answer");
    let counts = proxy.counts();
    assert_eq!((counts.of("PUT"), counts.of("GET"), counts.all()), (7, 1, 8));
    assert_eq!((counts.sent, counts.of("DELETE")), (7 * 12, 0));
}

#[test]
fn a_proxy_draws_the_same_faults_from_the_same_seed() {
    let Some(store) = store(Kind::Moto) else { return };
    let faults_of = |seed| {
        let proxy = StoreProxy::start(store.address(), seed);
        let faults = vec![Fault::Fail, Fault::SlowDown];
        proxy.behave(Behaviour { faults, per_mille: 500, ..Behaviour::default() });
        let ask = |_| store.request_at(proxy.address(), "GET", "none", &[], b"");
        let statuses = (0..12).map(ask).map(|answer| answer.expect("an answer").status);
        statuses.collect::<Vec<u16>>()
    };
    let first = faults_of(7);
    assert_eq!(faults_of(7), first);
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 3, "{first:?}");
    assert!((8..11).any(|seed| faults_of(seed) != first));
}

#[test]
fn a_proxy_that_stands_still_answers_when_it_is_healed() {
    let Some(store) = store(Kind::Moto) else { return };
    let proxy = StoreProxy::start(store.address(), 1);
    proxy.stand_still();
    thread::scope(|scope| {
        let put = scope.spawn(|| store.request_at(proxy.address(), "PUT", "held", &[], b"x"));
        assert!(proxy.wait_for(PATIENCE, |counts| counts.of("PUT") == 1), "it has come");
        assert_eq!(store.request("GET", "held", &[], b"").status, 404, "and not passed");
        assert!(!put.is_finished());
        proxy.heal();
        let answer = put.join().expect("no panic").expect("an answer");
        assert_eq!(answer.status, 200);
    });
    let delay = Duration::from_millis(50);
    proxy.behave(Behaviour { delay, is_constant: true, ..Behaviour::default() });
    let start = Instant::now();
    let answer = store.request_at(proxy.address(), "GET", "held", &[], b"").expect("an answer");
    assert_eq!(answer.text(), "x");
    assert!(start.elapsed() >= delay);
}
