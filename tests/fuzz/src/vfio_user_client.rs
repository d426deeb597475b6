//! A vfio-user server that says whatever the input says to our client. Whatever it says, nothing panics, everything ends by
//! its deadline, and no register access faults: accesses through pointers that are not aligned abort where debug assertions
//! are on, and pages that the server took away would end the process by SIGBUS.

use device::vfio_user::message::{self, Header, Message, command, words};
use device::{
    Bar as _, Deadline, Device as _, DmaMemory, MemoryRequest, PageSize, TimeLimit, TrustedPeer, VfioUserDevice,
};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For all that is done with one server.
const LIMIT: Duration = Duration::from_millis(300);

/// Runs one input: three bytes of what the client does, then how the server answers, message by message.
pub fn run(input: &[u8]) {
    let Some((wishes, answers)) = input.split_first_chunk::<3>() else { return };
    let began = Instant::now();
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    std::thread::scope(|scope| {
        scope.spawn(move || serve(&theirs, Choices(answers)));
        // SAFETY: the server below writes to no memory that it is given.
        let peer = unsafe { TrustedPeer::vouched_for() };
        let deadline = TimeLimit { total: LIMIT, cancel: None }.begin();
        if let Ok(nic) = VfioUserDevice::over(ours, peer, &deadline) {
            use_device(&nic, *wishes);
        }
    });
    // A busy machine is slow between two steps; without an end it would be for ever.
    assert!(began.elapsed() < LIMIT * 100, "{:?}", began.elapsed());
}

fn use_device(nic: &VfioUserDevice, [what, low, high]: [u8; 3]) {
    thread_local! {
        static MEMORY: Arc<DmaMemory> = DmaMemory::allocate(&MemoryRequest {
            bytes: 4096, pages: PageSize::Ordinary, numa_node: None,
        }).expect("memory");
    }
    let size = u32::try_from(nic.bar().size()).unwrap_or(u32::MAX);
    let any = u32::from_le_bytes([low, high, low & 1, 0]);
    for offset in [0, 4, any & !3, any, 0x1018, 0x1000, 0x3000, size & !3, size.wrapping_sub(4), u32::MAX] {
        nic.bar().read32(offset);
        // SAFETY: there is no device, and what these registers are is memory that nothing else is made of.
        unsafe { nic.bar().write32(offset, any) };
    }
    if what & 1 != 0 {
        let translation = MEMORY.with(|memory| nic.dma().map(memory));
        if what & 2 != 0 && translation.is_ok() {
            let _ = MEMORY.with(|memory| nic.dma().unmap(memory));
        }
    }
    if what & 4 != 0 {
        let wanted = u16::from(high);
        if let Ok(eventfds) = nic.enable_msix(wanted) {
            assert_eq!(eventfds.len(), usize::from(wanted));
        }
    }
    if what & 8 != 0 {
        let _ = nic.reset();
    }
    if what & 16 != 0 {
        let _ = nic.set_bus_master(true);
    }
    let _ = nic.config::<4>(u16::from_le_bytes([low, high]));
}

/// What is left of the input; when it is used up, zeros, which mean honesty.
struct Choices<'i>(&'i [u8]);

impl<'i> Choices<'i> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, len: usize) -> &'i [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A number near a multiple of a page, or of the kind that overflows.
    fn place(&mut self) -> u64 {
        let (pages, more) = (u64::from(self.byte()), self.byte());
        match more {
            0..=0x7F => pages << 12,
            0x80..=0xBF => (pages << 12) + u64::from(more & 0x3F),
            0xC0..=0xDF => u64::MAX - (pages << 12) - u64::from(more & 0x1F),
            _ => pages << (more & 0x3F),
        }
    }
}

fn serve(socket: &UnixStream, mut choices: Choices<'_>) {
    // A client that waits for the rest of a lie sees the connection end, well before its deadline.
    let patience = TimeLimit { total: Duration::from_millis(10), cancel: None };
    let mut state = State { command: [0, 0], files: Vec::new() };
    loop {
        let deadline = patience.begin();
        let Ok(Some(asked)) = message::receive(socket, Some(&deadline)) else { return };
        if answer(socket, &deadline, &asked, &mut state, &mut choices).is_none() {
            return;
        }
        // What it has shared it also takes away.
        for file in &state.files {
            match choices.byte() & 0xF {
                0xE => drop(rustix::fs::ftruncate(file, 0)),
                0xF => {
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let _ = rustix::fs::fallocate(file, hole, 0, 1 << 20);
                }
                _ => {}
            }
        }
        state.files.truncate(2);
    }
}

struct State {
    /// The command register of configuration space.
    command: [u8; 2],
    /// What the client may have mapped.
    files: Vec<OwnedFd>,
}

/// Answers one message; `None` to say nothing more.
fn answer(
    socket: &UnixStream,
    deadline: &Deadline,
    asked: &Message,
    state: &mut State,
    choices: &mut Choices<'_>,
) -> Option<()> {
    let (mut body, mut file) = honest(asked, state, choices);
    let mut header = asked.header.reply(body.len());
    match choices.byte() {
        0x80 => return None,
        0x81 => header.id = header.id.wrapping_add(1),
        0x82 => header.command = choices.byte().into(),
        0x83 => header = asked.header.error(choices.byte().into()),
        0x84 => body.truncate(choices.byte().into()),
        0x85 => {
            let len = choices.byte().into();
            body = choices.bytes(len).to_vec();
        }
        0x86 => {
            let (at, value) = (usize::from(choices.byte()), choices.byte());
            body.get_mut(at).into_iter().for_each(|byte| *byte = value);
        }
        0x87 => {
            let (command, len) = (choices.byte().into(), choices.byte().into());
            let own = Header::command(choices.byte().into(), command, len);
            let own = if len & 1 == 1 { own.posted() } else { own };
            message::send_by(socket, Some(deadline), own, &[&vec![0xA5; len]], &[]).ok()?;
        }
        // Silence until the client gives up.
        0x88 => std::thread::sleep(LIMIT),
        0x89 => {
            let len = choices.byte().into();
            (&*socket).write_all(choices.bytes(len)).ok()?;
        }
        0x8A => {
            header.size = choices.word();
            message::send_by(socket, Some(deadline), header, &[&body], &[]).ok()?;
            return Some(());
        }
        0x8B => body.extend(std::iter::repeat_n(0, 1 << (choices.byte() & 0x0F))),
        0x8C => header.flags = choices.word(),
        0x8D => file = a_file(choices),
        _ => {}
    }
    if header.failure().is_some() {
        body.clear();
    }
    header.size = u32::try_from(message::HEADER + body.len()).unwrap_or(u32::MAX);
    let fds: Vec<BorrowedFd<'_>> = file.iter().map(OwnedFd::as_fd).collect();
    message::send_by(socket, Some(deadline), header, &[&body], &fds).ok()?;
    drop(fds);
    state.files.extend(file);
    Some(())
}

/// The reply of a server with a device of 128 KiB of registers, with the numbers that the input wants.
fn honest(asked: &Message, state: &mut State, choices: &mut Choices<'_>) -> (Vec<u8>, Option<OwnedFd>) {
    let field =
        |at: usize| asked.body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    match asked.header.command {
        command::VERSION => (version(choices), None),
        command::DEVICE_GET_INFO => (words([16, 2 | u32::from(choices.byte() & 1), 10, 5]), None),
        command::DEVICE_GET_REGION_INFO => region_info(choices),
        command::DEVICE_GET_IRQ_INFO => (words([16, 0, 2, u32::from(choices.byte())]), None),
        command::REGION_READ => {
            let mut body = asked.body.get(..16).unwrap_or_default().to_vec();
            let data: Vec<u8> = match (field(8), field(0)) {
                (7, 0) => vec![0x86, 0x80, 0xfb, 0x10],
                (7, 4) => state.command.to_vec(),
                (7, 8) => vec![1, 0, 0, 2],
                _ => vec![choices.byte(); usize::from(choices.byte() & 0xF).max(4)],
            };
            body.extend(data);
            (body, None)
        }
        command::REGION_WRITE => {
            if let (7, 4, Some(data)) = (field(8), field(0), asked.body.get(16..18)) {
                state.command.copy_from_slice(data);
            }
            (asked.body.get(..16).unwrap_or_default().to_vec(), None)
        }
        _ => (Vec::new(), None),
    }
}

fn version(choices: &mut Choices<'_>) -> Vec<u8> {
    let text = match choices.byte() {
        0 => r#"{"capabilities":{"max_msg_fds":16}}"#.to_owned(),
        1 => "[5]".to_owned(),
        2 => "\"capabilities\"".to_owned(),
        3 => r#"{"capabilities":[{"doorbells":1}]}"#.to_owned(),
        4 => r#"{"capabilities":{"doorbells":{"region":{},"areas":[[],{},7]}}}"#.to_owned(),
        5 => {
            let len = choices.byte().into();
            String::from_utf8_lossy(choices.bytes(len)).into_owned()
        }
        _ => {
            let region = choices.byte();
            let count = choices.byte() & 3;
            let areas: Vec<String> = (0..count)
                .map(|_| {
                    let (first, at) = (choices.place(), choices.place());
                    let (stride, count) = (1_u64 << (choices.byte() & 0x3F), choices.byte());
                    format!(r#"{{"first":{first},"stride":{stride},"count":{count},"at":{at}}}"#)
                })
                .collect();
            format!(r#"{{"capabilities":{{"doorbells":{{"region":{region},"areas":[{}]}}}}}}"#, areas.join(","))
        }
    };
    let mut body = vec![0; 4];
    body.extend_from_slice(text.as_bytes());
    body.push(0);
    body
}

/// A region with up to three areas that may be mapped, in a file of any kind.
fn region_info(choices: &mut Choices<'_>) -> (Vec<u8>, Option<OwnedFd>) {
    let shape = choices.byte();
    let (size, offset) = if shape & 1 == 0 { (0x2_0000, 0) } else { (choices.place(), choices.place()) };
    let areas: Vec<(u64, u64)> = (0..shape >> 6).map(|_| (choices.place(), choices.place())).collect();
    let (mappable, listed) = (shape & 2 != 0, !areas.is_empty());
    let flags = 3 | u32::from(mappable) << 2 | u32::from(listed) << 3;
    let mut body = words([32, flags, 0, if listed { 32 } else { 0 }]);
    [size, offset].iter().for_each(|number: &u64| body.extend(number.to_le_bytes()));
    if listed {
        body.extend(words([1 | 1 << 16, 0, u32::from(shape >> 6), 0]));
        for (start, len) in areas {
            body.extend(start.to_le_bytes());
            body.extend(len.to_le_bytes());
        }
    }
    let file = if mappable { a_file(choices) } else { None };
    (body, file)
}

/// A file to share: of any size, sealed or not, of memory or not.
fn a_file(choices: &mut Choices<'_>) -> Option<OwnedFd> {
    let (kind, pages) = (choices.byte(), choices.byte());
    let huge = if kind & 7 == 7 { MemfdFlags::HUGETLB } else { MemfdFlags::empty() };
    let file = match kind & 7 {
        6 => return rustix::fs::open("/dev/zero", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).ok(),
        5 => return rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).ok(),
        4 => OwnedFd::from(tempfile::tempfile().ok()?),
        _ => rustix::fs::memfd_create("shared", MemfdFlags::ALLOW_SEALING | huge).ok()?,
    };
    let size = (u64::from(pages) << 12) + u64::from(kind >> 7);
    let size = if kind & 7 == 7 { size.next_multiple_of(2 << 20) } else { size };
    rustix::fs::ftruncate(&file, size).ok()?;
    let seals = [SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::WRITE, SealFlags::empty(), SealFlags::GROW];
    let _ = rustix::fs::fcntl_add_seals(&file, seals[usize::from(kind >> 4 & 3)]);
    Some(file)
}
