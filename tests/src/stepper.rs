//! Steps a thread of another process through its instructions, and collects the cache lines that
//! these instructions read and write.
//!
//! The tracer steps only between the marks `Begin` and `End`. A system call is one step: the tracer
//! does not see the memory that the kernel accesses. It also misses memory whose address an
//! instruction takes from vector registers.

/// An instruction at which a traced thread stops. Without a tracer the instruction raises SIGTRAP,
/// which kills the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Mark {
    /// From this mark on, the tracer stops the thread after each instruction.
    Begin = 1,
    /// From this mark on, the thread runs at full speed.
    End = 2,
    /// The tracer detaches from the thread.
    Done = 3,
}

impl Mark {
    /// Stops the calling thread until its tracer has seen the mark.
    #[cfg(target_arch = "x86_64")]
    pub fn stop(self) {
        // SAFETY: the tracer changes neither registers nor memory.
        unsafe { std::arch::asm!("int3", in("eax") self as u32) };
    }

    /// Does nothing: there is no tracer for this architecture.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn stop(self) {}
}

#[cfg(target_arch = "x86_64")]
pub use x86_64::{LINE_BYTES, Lines, Place, Touch, Traced};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::Mark;
    use crate::skip::Skip;
    use iced_x86::{
        Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
        Register, UsedMemory,
    };
    use libc::user_regs_struct as Registers;
    use std::collections::{BTreeMap, BTreeSet, HashMap};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::{io, ptr};

    /// Bytes of a line.
    pub const LINE_BYTES: u64 = 64;
    const PLACE_CALLS_MAX: usize = 5;
    /// Bytes of the longest instruction.
    const INSTRUCTION_BYTES: usize = 15;

    /// The lines that a thread touched, by address / 64.
    pub type Lines = BTreeMap<u64, Touch>;

    /// The address of an instruction, then the addresses of up to five calls that led to it,
    /// innermost first; 0: no further call.
    pub type Place = [u64; PLACE_CALLS_MAX + 1];

    /// The instructions that touched a line.
    #[derive(Debug, Clone, Default)]
    pub struct Touch {
        /// The instructions that read the line and do not write it.
        pub reads: BTreeSet<Place>,
        /// The instructions that may have written the line.
        pub writes: BTreeSet<Place>,
    }

    impl Touch {
        /// Returns `true` if an instruction may have written the line.
        pub fn is_written(&self) -> bool {
            !self.writes.is_empty()
        }
    }

    /// A thread of another process, traced until its mark `Done`.
    #[derive(Debug)]
    pub struct Traced {
        thread: i32,
        memory: File,
        code: HashMap<u64, Step>,
        lines: Lines,
        /// The calls that have not returned, innermost last.
        calls: Vec<u64>,
    }

    #[derive(Debug)]
    struct Step {
        code: Code,
        flow: FlowControl,
        memory: Vec<UsedMemory>,
    }

    impl Traced {
        /// Begins to trace a thread of a child process. The thread continues to run.
        pub fn seize(process: i32, thread: i32) -> Result<Self, Skip> {
            request(libc::PTRACE_SEIZE, thread, 0)
                .map_err(|error| Skip(format!("ptrace is refused: {error}")))?;
            let memory = File::open(format!("/proc/{process}/mem"))
                .map_err(|error| Skip(format!("memory of the traced process: {error}")))?;
            let (code, lines, calls) = (HashMap::new(), Lines::new(), Vec::new());
            Ok(Self { thread, memory, code, lines, calls })
        }

        /// Runs the thread up to its mark `Done`, detaches from it, and returns the lines that it
        /// touched between the marks `Begin` and `End`.
        pub fn record(mut self) -> Lines {
            let mut signal = self.wait();
            let mut stepping = false;
            loop {
                let registers = self.registers();
                if signal == libc::SIGTRAP && self.is_mark(registers.rip - 1, stepping) {
                    signal = 0;
                    match registers.rax as u32 {
                        it if it == Mark::Begin as u32 => stepping = true,
                        it if it == Mark::End as u32 => stepping = false,
                        _ => break,
                    }
                }
                if stepping {
                    signal = if signal == libc::SIGTRAP { 0 } else { signal };
                    self.note(&registers);
                }
                let how = if stepping { libc::PTRACE_SINGLESTEP } else { libc::PTRACE_CONT };
                request(how, self.thread, signal as u64).expect("a stopped thread goes on");
                signal = self.wait();
            }
            request(libc::PTRACE_DETACH, self.thread, 0).expect("a stopped thread goes on");
            self.lines
        }

        fn is_mark(&mut self, address: u64, stepping: bool) -> bool {
            // The last byte of another instruction may look like a mark. While the tracer steps, it
            // knows the instruction at `address`.
            let mut byte = [0];
            self.memory.read_exact_at(&mut byte, address).expect("code");
            byte == [0xcc]
                && (!stepping || self.code.get(&address).is_some_and(|it| it.code == Code::Int3))
        }

        /// Waits until the thread stops; returns the signal that stopped it, or 0 for a ptrace
        /// event.
        fn wait(&self) -> i32 {
            let mut status = 0;
            // SAFETY: a live number; __WALL waits for threads.
            let rc = unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) };
            assert_eq!(rc, self.thread, "waitpid: {}", io::Error::last_os_error());
            assert!(libc::WIFSTOPPED(status), "the traced thread ended: {status:#x}");
            // The thread does not get the SIGTRAP of a ptrace event.
            if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 }
        }

        fn registers(&self) -> Registers {
            // SAFETY: numbers, for which 0 is a value.
            let mut registers: Registers = unsafe { std::mem::zeroed() };
            request(libc::PTRACE_GETREGS, self.thread, &raw mut registers as u64)
                .expect("registers of a stopped thread");
            registers
        }

        fn note(&mut self, registers: &Registers) {
            let (memory, at) = (&self.memory, registers.rip);
            let place = place(at, &self.calls);
            let step = self.code.entry(at).or_insert_with(|| decode(memory, at));
            for used in &step.memory {
                let value = |register, _, _| value(registers, register);
                let Some(address) = used.virtual_address(0, value) else { continue };
                let size = (used.memory_size().size() as u64).max(1);
                let Some(writes) = writes(used.access()) else { continue };
                for line in address / LINE_BYTES..=(address + size - 1) / LINE_BYTES {
                    let touch = self.lines.entry(line).or_default();
                    let set = if writes { &mut touch.writes } else { &mut touch.reads };
                    set.insert(place);
                }
            }
            match step.flow {
                FlowControl::Call | FlowControl::IndirectCall => self.calls.push(at),
                FlowControl::Return => drop(self.calls.pop()),
                _ => {}
            }
        }
    }

    fn place(at: u64, calls: &[u64]) -> Place {
        let mut place = [at; PLACE_CALLS_MAX + 1];
        let calls = calls.iter().rev().copied().chain(std::iter::repeat(0));
        place[1..].iter_mut().zip(calls).for_each(|(slot, call)| *slot = call);
        place
    }

    /// Returns `true` if an access may write; `None`: the instruction does not access the operand.
    fn writes(access: OpAccess) -> Option<bool> {
        match access {
            OpAccess::None | OpAccess::NoMemAccess => None,
            OpAccess::Read | OpAccess::CondRead => Some(false),
            OpAccess::Write
            | OpAccess::CondWrite
            | OpAccess::ReadWrite
            | OpAccess::ReadCondWrite => Some(true),
        }
    }

    fn decode(memory: &File, at: u64) -> Step {
        let mut bytes = [0; INSTRUCTION_BYTES];
        let len = memory.read_at(&mut bytes, at).expect("code");
        let instruction: Instruction =
            Decoder::with_ip(64, &bytes[..len], at, DecoderOptions::NONE).decode();
        assert!(!instruction.is_invalid(), "no instruction at {at:#x}: {bytes:x?}");
        let mut factory = InstructionInfoFactory::new();
        let memory = factory.info(&instruction).used_memory().to_vec();
        Step { code: instruction.code(), flow: instruction.flow_control(), memory }
    }

    fn value(of: &Registers, register: Register) -> Option<u64> {
        let full = match register.full_register() {
            Register::RAX => of.rax,
            Register::RBX => of.rbx,
            Register::RCX => of.rcx,
            Register::RDX => of.rdx,
            Register::RSI => of.rsi,
            Register::RDI => of.rdi,
            Register::RBP => of.rbp,
            Register::RSP => of.rsp,
            Register::R8 => of.r8,
            Register::R9 => of.r9,
            Register::R10 => of.r10,
            Register::R11 => of.r11,
            Register::R12 => of.r12,
            Register::R13 => of.r13,
            Register::R14 => of.r14,
            Register::R15 => of.r15,
            Register::FS => of.fs_base,
            Register::GS => of.gs_base,
            Register::CS | Register::DS | Register::ES | Register::SS => 0,
            _ => return None,
        };
        Some(if register.is_gpr32() { full & u64::from(u32::MAX) } else { full })
    }

    fn request(what: libc::c_uint, thread: i32, data: u64) -> io::Result<()> {
        // SAFETY: data is a number, or the address of registers that live.
        let rc = unsafe { libc::ptrace(what, thread, ptr::null_mut::<u8>(), data) };
        if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
