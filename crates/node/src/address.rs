//! Pod addresses: each pod gets one from 127.0.0.0/8, which needs no setup on Linux.
//!
//! Services get loopback addresses too, from a separate range.
//!
//! Each agent owns a block 127.x.0.0/16, and a bound socket keeps other agents out of it. While the agent is down, sockets of its
//! pods' shims do. A pod's address is stored in its directory, so that it survives a restart of the agent.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Mutex;

/// The blocks to choose from; low ones are used by other programs (127.0.0.53 for DNS, for example).
const FIRST_BLOCK: u8 = 16;
const BLOCKS: u8 = 224;
/// A socket on the last address of a block reserves the block, and so does one on a pod's address.
const GUARD_PORT: u16 = 10_249;

#[derive(Debug)]
pub(crate) struct Addresses {
    block: u8,
    leased: Mutex<(BTreeSet<Ipv4Addr>, u32)>,
    _guard: UdpSocket,
}

impl Addresses {
    /// Reserves a block: the one recorded in `data_dir` if there is one, so that running pods keep their addresses.
    pub(crate) fn claim(data_dir: &Path, seed: &str) -> io::Result<Self> {
        let file = data_dir.join("address-block");
        let known = fs::read_to_string(&file)
            .ok()
            .and_then(|t| t.trim().parse::<u8>().ok())
            .filter(|b| *b >= FIRST_BLOCK && *b < FIRST_BLOCK + BLOCKS);
        // Another agent can have taken it only while this one was down and had no running pods. A lock keeps a second agent out of the
        // data directory.
        if let Some(block) = known
            && let Ok(guard) = guard(block)
        {
            return Ok(Self::new(block, guard));
        }
        let held = held();
        let start = seeded(seed);
        for step in 0..u32::from(BLOCKS) {
            let offset = u8::try_from((start.wrapping_add(step)) % u32::from(BLOCKS)).unwrap_or(0);
            let block = FIRST_BLOCK + offset;
            if !held.contains(&block)
                && let Ok(guard) = guard(block)
            {
                fs::write(&file, block.to_string())?;
                return Ok(Self::new(block, guard));
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "all address blocks 127.x.0.0/16 of this machine are taken by node agents",
        ))
    }

    fn new(block: u8, guard: UdpSocket) -> Self {
        Self { block, leased: Mutex::new((BTreeSet::new(), 0)), _guard: guard }
    }

    /// The address of `kubernetes.default.svc` in this block.
    pub(crate) fn api_service(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.block, 0, 1)
    }

    pub(crate) fn block(&self) -> u8 {
        self.block
    }

    /// Marks an address as taken by an existing pod.
    pub(crate) fn keep(&self, address: Ipv4Addr) {
        if let Ok(mut leased) = self.leased.lock() {
            leased.0.insert(address);
        }
    }

    pub(crate) fn lease(&self) -> Option<Ipv4Addr> {
        let busy = listening();
        let mut leased = self.leased.lock().ok()?;
        let chosen = choose(self.block, leased.1, |a| leased.0.contains(&a) || busy.contains(&a))?;
        // Rotate instead of taking the lowest: a name cached in a JVM must not lead to the next pod.
        leased.1 = index_of(chosen) + 1;
        leased.0.insert(chosen);
        Some(chosen)
    }

    pub(crate) fn release(&self, address: Ipv4Addr) {
        if let Ok(mut leased) = self.leased.lock() {
            leased.0.remove(&address);
        }
    }
}

fn guard(block: u8) -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::new(127, block, 255, 254), GUARD_PORT))
}

/// Reserves the block of a pod's address for as long as the socket exists, with or without an agent. `None` for an address that
/// belongs to no block.
pub(crate) fn hold(address: Ipv4Addr) -> Option<UdpSocket> {
    let [first, block, ..] = address.octets();
    let in_block = first == 127 && (FIRST_BLOCK..FIRST_BLOCK + BLOCKS).contains(&block);
    in_block.then(|| UdpSocket::bind((address, GUARD_PORT)).ok()).flatten()
}

/// Pods get 127.x.1.1 to 127.x.200.254, without .0 and .255 at the end; Services get the range above.
const PER_ROW: u32 = 254;
const ROWS: u32 = 200;
const SERVICE_ROWS: u32 = 50;

fn address_at(block: u8, index: u32) -> Ipv4Addr {
    let row = u8::try_from(index / PER_ROW + 1).unwrap_or(1);
    let column = u8::try_from(index % PER_ROW + 1).unwrap_or(1);
    Ipv4Addr::new(127, block, row, column)
}

fn index_of(address: Ipv4Addr) -> u32 {
    let [_, _, row, column] = address.octets();
    (u32::from(row) - 1) * PER_ROW + u32::from(column) - 1
}

fn choose(block: u8, from: u32, taken: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
    (0..PER_ROW * ROWS).map(|step| address_at(block, (from + step) % (PER_ROW * ROWS))).find(|a| !taken(*a))
}

/// A Service's address, derived from its name, so that it is stable without stored state.
pub(crate) fn for_service(block: u8, name: &str, taken: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
    let all = PER_ROW * SERVICE_ROWS;
    let start = seeded(name) % all;
    (0..all).map(|step| address_at(block, PER_ROW * ROWS + (start + step) % all)).find(|a| !taken(*a))
}

fn seeded(text: &str) -> u32 {
    text.bytes().fold(7_u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)))
}

/// Blocks that an agent or a shim on this machine holds.
fn held() -> BTreeSet<u8> {
    let table = fs::read_to_string("/proc/net/udp").unwrap_or_default();
    table.lines().skip(1).filter_map(parse_guard).collect()
}

/// `  0: 0101117F:2809 00000000:0000 07 …` → 17.
fn parse_guard(line: &str) -> Option<u8> {
    let (address, port) = line.split_whitespace().nth(1)?.split_once(':')?;
    (u16::from_str_radix(port, 16).ok()? == GUARD_PORT).then_some(())?;
    match u32::from_str_radix(address, 16).ok()?.to_le_bytes() {
        [127, block, ..] => Some(block),
        _ => None,
    }
}

/// Addresses that a process on this machine listens on.
fn listening() -> BTreeSet<Ipv4Addr> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    table.lines().skip(1).filter_map(parse_listener).collect()
}

/// `  0: 0101117F:1F90 00000000:0000 0A …` → 127.17.1.1, for listening sockets (state 0A).
fn parse_listener(line: &str) -> Option<Ipv4Addr> {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next()?;
    (fields.nth(1)? == "0A").then_some(())?;
    let number = u32::from_str_radix(local.split(':').next()?, 16).ok()?;
    Some(Ipv4Addr::from(number.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unique_and_not_reused_at_once() {
        let taken = |a: Ipv4Addr| a == Ipv4Addr::new(127, 20, 1, 2);
        assert_eq!(choose(20, 0, taken), Some(Ipv4Addr::new(127, 20, 1, 1)));
        assert_eq!(choose(20, 1, taken), Some(Ipv4Addr::new(127, 20, 1, 3)));
        assert_eq!(choose(20, PER_ROW * ROWS, taken), Some(Ipv4Addr::new(127, 20, 1, 1)), "goes round");
        assert_eq!(choose(20, 0, |_| true), None);
        for index in [0, 1, 253, 254, 50_000] {
            assert_eq!(index_of(address_at(20, index)), index);
        }
    }

    #[test]
    fn services_have_addresses_that_no_pod_gets() {
        let one = for_service(20, "jobs/front", |_| false).expect("an address");
        assert_eq!(for_service(20, "jobs/front", |_| false), Some(one), "the same again");
        let other = for_service(20, "jobs/front", |a| a == one).expect("another");
        assert_ne!(one, other);
        assert!(one.octets()[2] > 200 && other.octets()[2] > 200, "{one} {other}");
        assert!(choose(20, PER_ROW * ROWS - 1, |_| false).is_some_and(|a| a.octets()[2] <= 200));
    }

    #[test]
    fn listeners_are_read_from_the_kernels_table() {
        let line = "   0: 0101117F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert_eq!(parse_listener(line), Some(Ipv4Addr::new(127, 17, 1, 1)));
        assert_eq!(parse_listener(&line.replace("0A", "01")), None);
    }

    #[test]
    fn a_block_is_held_by_one_agent_and_kept_over_a_restart() {
        let (one, two) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let first = Addresses::claim(one.path(), "same").expect("a block");
        let second = Addresses::claim(two.path(), "same").expect("another block");
        assert_ne!(first.block, second.block);
        let block = first.block;
        drop(first);
        assert_eq!(Addresses::claim(one.path(), "other").expect("again").block, block);
    }

    #[test]
    fn a_block_with_pods_is_nobody_elses_while_its_agent_is_down() {
        let (one, two, three) =
            (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let first = Addresses::claim(one.path(), "shared").expect("a block");
        let (block, address) = (first.block, first.lease().expect("an address"));
        let shim = hold(address).expect("a socket");
        drop(first);
        let second = Addresses::claim(two.path(), "shared").expect("another block");
        assert_ne!(second.block, block, "a pod's shim holds it");
        assert_eq!(Addresses::claim(one.path(), "shared").expect("its own").block, block);

        // Without pods, an agent whose block was taken meanwhile gets another.
        drop(shim);
        fs::write(three.path().join("address-block"), second.block.to_string()).expect("written");
        assert_ne!(Addresses::claim(three.path(), "shared").expect("a block").block, second.block);
        assert!(hold(Ipv4Addr::LOCALHOST).is_none());
    }
}
