//! The state machine, one call at a time: its operations for the store, and the ends of its
//! requests.

use nowait_image_format::{
    Answer, Geometry, Head, Image, Key, Operation, Origin, Over, PROOF_NS, Request, Settings,
    Status, Ticket, Writer,
};

const SECOND_NS: u64 = 1_000_000_000;

fn image(size_bytes: u64) -> (Image, Vec<u8>) {
    let writer = Writer { nonce: [1; 16], name: String::from("a writer") };
    let geometry = Geometry::checked(4096, size_bytes).expect("an image");
    let origin = Origin::Create { image: [2; 16], geometry };
    let mut image = Image::open(Settings::new(writer), origin, 0);
    let (ticket, operation) = image.pop_operation().expect("the head is put");
    let Operation::PutIfAbsent { body, .. } = operation else { panic!("{operation:?}") };
    put(&mut image, ticket, 0);
    (image, body.to_vec())
}

fn put(image: &mut Image, ticket: Ticket, now_ns: u64) {
    image.answer(ticket, Answer::Put(String::from("a tag")), now_ns);
}

fn write(offset: u64, durable: bool) -> Request {
    Request::Write { offset, data: vec![7; 4096], durable }
}

fn operations(image: &mut Image) -> Vec<(Ticket, Operation)> {
    std::iter::from_fn(|| image.pop_operation()).collect()
}

fn ends(image: &mut Image) -> Vec<u64> {
    let ends = std::iter::from_fn(|| image.pop_end());
    ends.map(|end| (end.result.is_ok(), end.id)).map(|(ok, id)| if ok { id } else { 0 }).collect()
}

#[test]
fn flushes_that_come_meanwhile_share_the_next_put() {
    let (mut image, _) = image(1 << 30);
    image.submit(1, write(0, true), 1);
    let first = operations(&mut image);
    assert_eq!(first.len(), 1);
    for id in 2..18 {
        image.submit(id, write(id * 4096, true), 2);
    }
    assert_eq!(operations(&mut image), []);
    put(&mut image, first[0].0, 3);
    assert_eq!(ends(&mut image), [1]);
    // The next PUT waits a moment, because the client of the first flush may send another one.
    assert_eq!(operations(&mut image), []);
    image.submit(18, write(18 * 4096, true), 4);
    let second = operations(&mut image);
    assert_eq!(second.len(), 1);
    put(&mut image, second[0].0, 5);
    assert_eq!(ends(&mut image), (2..19).collect::<Vec<_>>());
    // One client sends another flush, the others do not.
    image.submit(19, write(19 * 4096, true), 6);
    assert_eq!((operations(&mut image), image.next_ns()), (vec![], Some(500_006)));
    image.turn(500_006);
    let third = operations(&mut image);
    assert_eq!(third.len(), 1);
    put(&mut image, third[0].0, 600_000);
    assert_eq!(ends(&mut image), [19]);
    // At the end of the last PUT this client's flush was the only one, so it waits for no other.
    image.submit(20, write(20 * 4096, true), 600_001);
    assert_eq!(operations(&mut image).len(), 1);
}

#[test]
fn a_discard_of_a_tebibyte_is_one_put() {
    let (mut image, _) = image(1 << 40);
    let all = Request::Discard { offset: 0, len: 1 << 40 };
    image.submit(1, all.clone(), 1);
    image.submit(2, Request::Flush, 1);
    assert_eq!((ends(&mut image), operations(&mut image)), (vec![1, 2], vec![]));
    image.submit(3, write(1 << 39, false), 1);
    image.submit(4, all, 1);
    image.submit(5, Request::Flush, 1);
    assert_eq!((ends(&mut image), operations(&mut image).len()), (vec![3, 4], 1));
}

#[test]
fn an_idle_image_requests_nothing() {
    let (mut image, _) = image(1 << 30);
    assert_eq!(image.next_ns(), None);
    image.turn(1_000 * SECOND_NS);
    assert_eq!(operations(&mut image), []);
}

#[test]
fn reads_request_the_head_each_minute_though_a_put_has_proved_the_same() {
    let (mut image, head) = image(1 << 30);
    let read = Request::Read { offset: 0, len: 4096 };
    let mut now_ns = 0;
    for round in 0..3 {
        now_ns += PROOF_NS + 1;
        image.submit(10 + round, read.clone(), now_ns);
        assert_eq!(ends(&mut image), [], "round {round}");
        let asked = operations(&mut image);
        assert_eq!(asked.len(), 1, "round {round}");
        // The writer sends a segment at the same time, and the store puts this segment before the
        // store answers the GET of the head.
        image.submit(20 + round, write(8192, true), now_ns);
        let (ticket, _) = image.pop_operation().expect("a segment is put");
        put(&mut image, ticket, now_ns);
        let (bytes, object_bytes) = (head.clone(), head.len() as u64);
        image.answer(asked[0].0, Answer::Got { bytes, object_bytes, tag: String::new() }, now_ns);
        let mut ended = ends(&mut image);
        ended.sort_unstable();
        assert_eq!(ended, [10 + round, 20 + round], "round {round}");
    }
}

#[test]
fn a_flush_reads_the_head_after_a_minute_and_an_empty_flush_never() {
    let (mut image, head) = image(1 << 30);
    image.submit(1, Request::Flush, 10 * PROOF_NS);
    assert_eq!((ends(&mut image), operations(&mut image)), (vec![1], vec![]));
    image.submit(2, write(0, true), 10 * PROOF_NS);
    let [(asked, get), (sent, segment)] = operations(&mut image).try_into().expect("two");
    assert!(matches!(get, Operation::Get { key: Key::Head, .. }), "{get:?}");
    assert!(matches!(segment, Operation::PutIfAbsent { .. }), "{segment:?}");
    put(&mut image, sent, 10 * PROOF_NS + 1);
    assert_eq!((ends(&mut image), operations(&mut image)), (vec![], vec![]));
    image.answer(asked, got(&head), 10 * PROOF_NS + 2);
    assert_eq!(ends(&mut image), [2]);
    image.submit(3, Request::Flush, 20 * PROOF_NS);
    assert_eq!((ends(&mut image), operations(&mut image)), (vec![3], vec![]));
}

fn take_over() -> Image {
    let writer = Writer { nonce: [3; 16], name: String::from("the next writer") };
    Image::open(Settings::new(writer), Origin::TakeOver, 0)
}

fn got(bytes: &[u8]) -> Answer {
    let (bytes, object_bytes) = (bytes.to_vec(), bytes.len() as u64);
    Answer::Got { bytes, object_bytes, tag: String::from("a tag") }
}

#[test]
fn errors_of_the_store_are_not_taken_for_damage() {
    let (_, head) = image(1 << 30);
    let (damaged, whole) = (got(&head[..9]), got(&head));
    for (errors, answers, is_over) in [(20, 8, false), (0, 9, true)] {
        let mut image = take_over();
        let failed = std::iter::repeat_n(&Answer::Failed, errors);
        for answer in failed.chain(std::iter::repeat_n(&damaged, answers)).chain([&whole]) {
            if let Some(next_ns) = image.next_ns() {
                image.turn(next_ns);
            }
            let Some((ticket, _)) = image.pop_operation() else { break };
            image.answer(ticket, answer.clone(), 0);
        }
        assert_eq!(matches!(image.status(), Status::Over(_)), is_over, "{errors} {answers}");
        assert_eq!(image.pop_operation().is_none(), is_over, "the head is put anew");
    }
}

/// Lets a writer that opens an image read a segment that is not valid. Then the writer reads the
/// head: it is `another`, or with `None` the writer's own.
fn opened_with_a_strange_segment(another: Option<&[u8]>) -> Status {
    let (_, mut head) = image(1 << 30);
    let mut image = take_over();
    while let Some((ticket, operation)) = image.pop_operation() {
        let answer = match operation {
            Operation::PutIfMatch { body, .. } => {
                head = another.unwrap_or(&body).to_vec();
                Answer::Put(String::from("a tag"))
            }
            Operation::Get { key: Key::Head, .. } => got(&head),
            Operation::Get { key: Key::Segment(1), .. } => got(b"a segment of a larger image"),
            Operation::Get { .. } => Answer::Missing,
            Operation::List { .. } => Answer::Listed(Vec::new()),
            Operation::PutIfAbsent { .. } | Operation::Delete { .. } => panic!("{operation:?}"),
        };
        image.answer(ticket, answer, 0);
        if let Some(next_ns) = image.next_ns() {
            image.turn(next_ns);
        }
    }
    image.status()
}

#[test]
fn a_writer_replaced_while_it_opens_takes_no_object_of_the_next_for_damage() {
    let (_, head) = image(1 << 30);
    let mut later = Head::parse(&head).expect("a head");
    (later.epoch, later.writer.name) = (3, String::from("a later writer"));
    let fenced = Over::Fenced { epoch: 3, writer: later.writer.name.clone() };
    assert_eq!(opened_with_a_strange_segment(Some(&later.encode())), Status::Over(fenced));
    let status = opened_with_a_strange_segment(None);
    let Status::Over(Over::Failed(why)) = status else { panic!("{status:?}") };
    assert!(why.starts_with("a segment of its log is damaged"), "{why}");
}

/// Opens an image whose store has only a head and `parts` of the first checkpoint of epoch 1.
/// Returns the keys that the writer deletes.
fn deleted_by_the_next_writer(parts: &[u32]) -> Vec<Key> {
    let (_, mut head) = image(1 << 30);
    let mut image = take_over();
    let mut deleted = Vec::new();
    while let Some((ticket, operation)) = image.pop_operation() {
        let answer = match operation {
            Operation::PutIfMatch { body, .. } => {
                head = body.to_vec();
                Answer::Put(String::from("a tag"))
            }
            Operation::PutIfAbsent { .. } => Answer::Put(String::from("a tag")),
            Operation::Get { key: Key::Head, .. } => got(&head),
            Operation::Get { key: Key::Part { epoch: 1, nth: 1, number }, .. }
                if parts.contains(&number) =>
            {
                got(b"a part")
            }
            Operation::Get { .. } => Answer::Missing,
            Operation::List { .. } => Answer::Listed(Vec::new()),
            Operation::Delete { key, .. } => {
                deleted.push(key);
                Answer::Deleted
            }
        };
        image.answer(ticket, answer, 0);
        // Makes the writer send further operations, except repetitions after a pause.
        image.turn(0);
    }
    assert!(matches!(image.status(), Status::Serving { epoch: 2, .. }), "{:?}", image.status());
    deleted
}

#[test]
fn the_next_writer_deletes_the_leftovers_of_a_dead_one() {
    // The fence is at 1, so the log continues at 17.
    let behind_the_fence = (2..17).map(Key::Segment);
    for (there, found) in [(&[][..], &[][..]), (&[1], &[1]), (&[0, 3, 7, 12], &[7, 3, 0])] {
        let parts = found.iter().map(|number| Key::Part { epoch: 1, nth: 1, number: *number });
        let expected: Vec<Key> = behind_the_fence.clone().chain(parts).collect();
        assert_eq!(deleted_by_the_next_writer(there), expected, "{there:?}");
    }
}

#[test]
fn an_own_segment_found_later_is_no_proof_of_now() {
    let (mut image, head) = image(1 << 30);
    image.submit(1, write(0, true), 1);
    let (ticket, operation) = image.pop_operation().expect("a segment is put");
    let Operation::PutIfAbsent { body, .. } = operation else { panic!("{operation:?}") };
    // The store refuses the repeated PUT, because an earlier try had succeeded without an answer.
    // The writer finds its segment a minute later.
    image.answer(ticket, Answer::Refused, PROOF_NS);
    let (ticket, _) = image.pop_operation().expect("it is looked at");
    image.answer(ticket, got(&body), PROOF_NS + 2);
    image.submit(2, Request::Read { offset: 8192, len: 4096 }, PROOF_NS + 3);
    assert_eq!(ends(&mut image), []);
    let asked = operations(&mut image);
    assert!(matches!(asked[..], [(_, Operation::Get { key: Key::Head, .. })]), "{asked:?}");
    image.answer(asked[0].0, got(&head), PROOF_NS + 4);
    assert_eq!(ends(&mut image), [2, 1]);
}
