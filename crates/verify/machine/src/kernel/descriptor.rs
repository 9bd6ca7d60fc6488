//! Descriptor tables, and open files that are sent from one table to another.

use super::{Answer, event::release, socket};
use crate::schedule::{Cpu, Key, World};
use std::collections::{BTreeMap, VecDeque};

/// Identifies an open file, to which descriptor numbers refer.
pub(super) type OpenId = usize;

#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) what: What,
    pub(super) flags: i32,
    pub(super) position: u64,
    /// Number of the file's flush errors reported by this open, or older than this open.
    told_errors: u64,
    references: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    File(u64),
    /// An eventfd.
    Counter(u64),
    /// One end of a channel, which receives from the queue `own` and sends to the queue `other`.
    End {
        own: usize,
        other: usize,
    },
    /// One end of a socket pair, which reads the lane `own` and writes to the lane `other`.
    Stream {
        own: usize,
        other: usize,
    },
    Reader(usize),
    Writer(usize),
    Set(usize),
    Ring(usize),
    /// A pidfd of the only process.
    Process,
}

#[derive(Debug)]
pub(super) struct Message {
    bytes: [u8; 8],
    file: Option<OpenId>,
}

#[derive(Debug, Default)]
pub(super) struct Descriptors {
    tables: Vec<BTreeMap<i32, OpenId>>,
    open: BTreeMap<OpenId, OpenFile>,
    next: usize,
    pub(super) messages: BTreeMap<usize, VecDeque<Message>>,
}

const MESSAGES_MAX: usize = 32;
const NUMBERS_MAX: i32 = 1 << 20;

impl Descriptors {
    pub(super) fn count(&self, what: What) -> usize {
        self.open.values().filter(|open| open.what == what).count()
    }
}

impl World {
    fn descriptors(&mut self) -> &mut Descriptors {
        let table = self.table();
        let descriptors = &mut self.kernel.descriptors;
        while descriptors.tables.len() <= table {
            descriptors.tables.push(BTreeMap::new());
        }
        descriptors
    }

    fn numbers(&mut self) -> &mut BTreeMap<i32, OpenId> {
        let table = self.table();
        &mut self.descriptors().tables[table]
    }

    pub(super) fn new_id(&mut self) -> usize {
        self.kernel.descriptors.next += 1;
        self.kernel.descriptors.next
    }

    /// Opens an object at the lowest free number from `floor` on.
    pub(super) fn open(&mut self, what: What, flags: i32, floor: i32) -> Answer {
        let id = self.new_id();
        let told_errors = self.errors_so_far(what);
        let open = OpenFile { what, flags, position: 0, told_errors, references: 0 };
        self.kernel.descriptors.open.insert(id, open);
        self.install(id, floor)
    }

    fn install(&mut self, id: OpenId, floor: i32) -> Answer {
        let numbers = self.numbers();
        // Numbers 0 to 2 are never given out: writes there fail with EBADF, which std ignores.
        let free = (floor.max(3)..NUMBERS_MAX).find(|number| !numbers.contains_key(number));
        let number = free.ok_or(libc::EMFILE)?;
        numbers.insert(number, id);
        self.refer(id);
        Ok(number as usize)
    }

    pub(super) fn refer(&mut self, id: OpenId) {
        self.kernel.descriptors.open.get_mut(&id).expect("it is open").references += 1;
    }

    pub(super) fn unrefer(&mut self, id: OpenId) {
        let open = self.kernel.descriptors.open.get_mut(&id).expect("it is open");
        open.references -= 1;
        if open.references == 0 {
            let what = open.what;
            self.kernel.descriptors.open.remove(&id);
            release(self, id, what);
        }
    }

    pub(super) fn opened(&mut self, number: usize) -> Result<OpenId, i32> {
        self.numbers().get(&(number as i32)).copied().ok_or(libc::EBADF)
    }

    pub(super) fn what(&self, id: OpenId) -> What {
        self.kernel.descriptors.open[&id].what
    }

    pub(super) fn what_is_left(&self, id: OpenId) -> Option<What> {
        self.kernel.descriptors.open.get(&id).map(|open| open.what)
    }

    pub(super) fn flags(&self, id: OpenId) -> i32 {
        self.kernel.descriptors.open[&id].flags
    }

    pub(super) fn set_nonblocking(&mut self, id: OpenId, on: bool) {
        let open = self.kernel.descriptors.open.get_mut(&id).expect("it is open");
        open.flags = open.flags & !libc::O_NONBLOCK | if on { libc::O_NONBLOCK } else { 0 };
    }

    pub(super) fn told_errors(&mut self, id: OpenId) -> &mut u64 {
        &mut self.kernel.descriptors.open.get_mut(&id).expect("it is open").told_errors
    }

    pub(super) fn has_messages(&self, queue: usize) -> bool {
        self.kernel.descriptors.messages.get(&queue).is_some_and(|queue| !queue.is_empty())
    }

    pub(super) fn has_room(&self, queue: usize) -> bool {
        let messages = self.kernel.descriptors.messages.get(&queue);
        messages.is_none_or(|queue| queue.len() < MESSAGES_MAX)
    }

    pub(super) fn position(&mut self, id: OpenId) -> &mut u64 {
        &mut self.kernel.descriptors.open.get_mut(&id).expect("it is open").position
    }

    pub(super) fn drop_messages(&mut self, queue: usize) {
        let messages = self.kernel.descriptors.messages.remove(&queue).unwrap_or_default();
        messages.into_iter().filter_map(|it| it.file).for_each(|id| self.unrefer(id));
    }
}

pub(super) unsafe fn close(cpu: &mut Cpu<'_>, [number, ..]: [usize; 6]) -> Answer {
    let id = cpu.numbers().remove(&(number as i32)).ok_or(libc::EBADF)?;
    cpu.unrefer(id);
    Ok(0)
}

pub(super) unsafe fn dup3(cpu: &mut Cpu<'_>, [number, other, ..]: [usize; 6]) -> Answer {
    let id = cpu.opened(number)?;
    cpu.refer(id);
    if let Some(replaced) = cpu.numbers().insert(other as i32, id) {
        cpu.unrefer(replaced);
    }
    Ok(other)
}

fn own_table(cpu: &mut Cpu<'_>) {
    let copy = cpu.numbers().clone();
    copy.values().for_each(|id| cpu.refer(*id));
    cpu.kernel.descriptors.tables.push(copy);
    let table = cpu.kernel.descriptors.tables.len() - 1;
    cpu.set_table(table);
}

pub(super) unsafe fn unshare(cpu: &mut Cpu<'_>, [what, ..]: [usize; 6]) -> Answer {
    assert_eq!(what as i32, libc::CLONE_FILES, "nothing else is shared");
    own_table(cpu);
    Ok(0)
}

pub(super) unsafe fn pidfd_open(cpu: &mut Cpu<'_>, _: [usize; 6]) -> Answer {
    cpu.open(What::Process, libc::O_RDWR, 0)
}

/// Installs an open file of the first table, the main thread's, in the running thread's table.
pub(super) unsafe fn pidfd_getfd(cpu: &mut Cpu<'_>, [of, number, ..]: [usize; 6]) -> Answer {
    let of = cpu.opened(of)?;
    let What::Process = cpu.what(of) else { return Err(libc::EBADF) };
    let main = &cpu.descriptors().tables[0];
    let id = main.get(&(number as i32)).copied().ok_or(libc::EBADF)?;
    cpu.install(id, 0)
}

pub(super) unsafe fn close_range(
    cpu: &mut Cpu<'_>,
    [first, last, flags, ..]: [usize; 6],
) -> Answer {
    const UNSHARE: usize = 1 << 1;
    if flags & UNSHARE != 0 {
        own_table(cpu);
    }
    let last = (last as u32).min(i32::MAX as u32) as i32;
    let range = first as i32..=last;
    let numbers: Vec<i32> = cpu.numbers().range(range).map(|(number, _)| *number).collect();
    for number in numbers {
        let id = cpu.numbers().remove(&number).expect("just seen");
        cpu.unrefer(id);
    }
    Ok(0)
}

pub(super) unsafe fn fcntl(
    cpu: &mut Cpu<'_>,
    [number, command, argument, ..]: [usize; 6],
) -> Answer {
    const CHANGEABLE: i32 = libc::O_APPEND | libc::O_DIRECT | libc::O_NONBLOCK;
    let id = cpu.opened(number)?;
    match command as i32 {
        libc::F_GETFL => Ok(cpu.flags(id) as usize),
        libc::F_SETFL => {
            let open = cpu.kernel.descriptors.open.get_mut(&id).expect("it is open");
            open.flags = open.flags & !CHANGEABLE | argument as i32 & CHANGEABLE;
            Ok(0)
        }
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => cpu.install(id, argument as i32),
        // The machine has one process, so its locks never conflict.
        libc::F_GETFD | libc::F_SETFD | libc::F_OFD_SETLK => Ok(0),
        libc::F_OFD_GETLK => {
            // SAFETY: the caller's.
            let lock = unsafe { &mut *(argument as *mut libc::flock) };
            lock.l_type = libc::F_UNLCK as libc::c_short;
            Ok(0)
        }
        other => panic!("fcntl command {other} is not simulated"),
    }
}

pub(super) unsafe fn socketpair(cpu: &mut Cpu<'_>, args: [usize; 6]) -> Answer {
    const KIND: i32 = 0xf;
    if args[1] as i32 & KIND == libc::SOCK_STREAM {
        let flags = libc::O_RDWR | args[1] as i32 & libc::SOCK_NONBLOCK;
        let [first, second] = cpu.new_streams();
        let ends = [cpu.open(first, flags, 0)? as i32, cpu.open(second, flags, 0)? as i32];
        // SAFETY: room for two, given by the caller.
        unsafe { (args[3] as *mut [i32; 2]).write(ends) };
        return Ok(0);
    }
    let (own, other) = (cpu.new_id(), cpu.new_id());
    let first = cpu.open(What::End { own, other }, libc::O_RDWR | libc::O_NONBLOCK, 0)?;
    let second = What::End { own: other, other: own };
    let second = cpu.open(second, libc::O_RDWR | libc::O_NONBLOCK, 0)?;
    // SAFETY: room for two, given by the caller.
    unsafe { (args[3] as *mut [i32; 2]).write([first as i32, second as i32]) };
    Ok(0)
}

/// Offset of the descriptor in a message's control data, which hold nothing else here.
const FILE_AT: usize = 16;

pub(super) unsafe fn sendmsg(
    cpu: &mut Cpu<'_>,
    [number, message, flags, ..]: [usize; 6],
) -> Answer {
    let id = cpu.opened(number)?;
    if let What::Stream { .. } = cpu.what(id) {
        // SAFETY: promised by the caller.
        return unsafe { socket::sendmsg(cpu, id, message, flags) };
    }
    let What::End { other, .. } = cpu.what(id) else { return Err(libc::ENOTSOCK) };
    // SAFETY: the caller's message, of one part of eight bytes and perhaps one descriptor.
    let (bytes, file) = unsafe {
        let message = &*(message as *const libc::msghdr);
        assert_eq!((*message.msg_iov).iov_len, 8, "a message is a tag");
        let bytes = (*message.msg_iov).iov_base.cast::<[u8; 8]>().read_unaligned();
        let control = message.msg_control.cast::<u8>();
        let file = (!control.is_null()).then(|| control.add(FILE_AT).cast::<i32>().read());
        (bytes, file)
    };
    let file = file.map(|number| cpu.opened(number as usize)).transpose()?;
    if !cpu.has_room(other) {
        return Err(libc::EAGAIN);
    }
    file.into_iter().for_each(|id| cpu.refer(id));
    let messages = &mut cpu.kernel.descriptors.messages;
    messages.entry(other).or_default().push_back(Message { bytes, file });
    cpu.wake(Key::Readiness, usize::MAX);
    Ok(8)
}

pub(super) unsafe fn recvmsg(
    cpu: &mut Cpu<'_>,
    [number, message, flags, ..]: [usize; 6],
) -> Answer {
    let id = cpu.opened(number)?;
    let What::End { own, .. } = cpu.what(id) else { return Err(libc::ENOTSOCK) };
    assert_eq!(flags as i32 & libc::MSG_PEEK, 0, "messages are taken");
    let messages = cpu.kernel.descriptors.messages.entry(own).or_default();
    let Message { bytes, file } = messages.pop_front().ok_or(libc::EAGAIN)?;
    cpu.wake(Key::Readiness, usize::MAX);
    // SAFETY: the caller's message, with room for eight bytes and one descriptor.
    let message = unsafe { &mut *(message as *mut libc::msghdr) };
    // SAFETY: as above.
    unsafe { (*message.msg_iov).iov_base.cast::<[u8; 8]>().write_unaligned(bytes) };
    message.msg_flags = 0;
    if message.msg_control.is_null() {
        file.into_iter().for_each(|id| cpu.unrefer(id));
        message.msg_flags = libc::MSG_CTRUNC;
        return Ok(8);
    }
    match file.map(|id| (id, cpu.install(id, 0))) {
        Some((id, Ok(number))) => {
            cpu.unrefer(id);
            // SAFETY: as above.
            unsafe {
                let control = message.msg_control.cast::<u8>();
                control.cast::<usize>().write(FILE_AT + 4);
                control.add(8).cast::<i32>().write(libc::SOL_SOCKET);
                control.add(12).cast::<i32>().write(libc::SCM_RIGHTS);
                control.add(FILE_AT).cast::<i32>().write(number as i32);
            }
        }
        lost => {
            lost.into_iter().for_each(|(id, _)| cpu.unrefer(id));
            message.msg_controllen = 0;
            message.msg_flags = libc::MSG_CTRUNC;
        }
    }
    Ok(8)
}
