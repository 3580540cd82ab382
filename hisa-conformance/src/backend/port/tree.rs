//! Everything a port started, found and killed whatever it did to hide.
//!
//! Three traces lead to a process: its parents, its process group, and a variable in its
//! environment that no other port has. A process that changes one of them keeps the others. The
//! `hisa` processes [`adopt`] orphans, so that a daemon stays among their descendants.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// The variable that marks a worker and all that it starts.
pub(crate) const WORKER: &str = "HISA_WORKER";
/// The variable that marks a port and all that it starts.
pub(crate) const PORT: &str = "HISA_PORT";

/// Rounds of killing, some milliseconds each: a process in the kernel may take a while to die.
const ROUNDS: u32 = 400;

static ADOPTS: AtomicBool = AtomicBool::new(false);
/// The workers of this process: its only children that are not strays.
static WORKERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Makes this process the parent of every orphan among its descendants, and says that it has no
/// children but workers and ports. Only for processes that are `hisa` and nothing else.
pub(crate) fn adopt() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpid, set_child_subreaper};
        ADOPTS.store(
            set_child_subreaper(Some(getpid())).is_ok(),
            Ordering::Relaxed,
        );
    }
}

/// A value for [`WORKER`] or [`PORT`] that nothing else has.
pub(crate) fn mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos());
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{now:x}-{next}", std::process::id())
}

/// Starts a worker, which is then no stray.
pub(crate) fn spawn_worker(command: &mut Command) -> io::Result<Child> {
    let mut workers = workers();
    let child = command.spawn()?;
    workers.insert(child.id());
    Ok(child)
}

/// Forgets a worker that has been waited for.
pub(crate) fn forget_worker(id: u32) {
    workers().remove(&id);
}

fn workers() -> MutexGuard<'static, BTreeSet<u32>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is to be killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Roots<'a> {
    /// A child of this process that has not been waited for, and leads a process group.
    pub(crate) leader: Option<u32>,
    /// A variable and its value.
    pub(crate) mark: (&'static str, &'a str),
}

/// Kills the leader, its group, its descendants, strays, and every process with the mark, until
/// none is left. Returns whether that was achieved.
pub(crate) fn end(roots: Roots<'_>) -> bool {
    (0..ROUNDS).any(|round| {
        if round > 0 {
            std::thread::sleep(Duration::from_millis(if round < 20 { 1 } else { 10 }));
        }
        system::kill_round(roots)
    })
}

/// Kills every descendant of this process, workers too. For the end of an interrupted process.
pub(crate) fn end_descendants() {
    workers().clear();
    if ADOPTS.load(Ordering::Relaxed) {
        let mark = (WORKER, "");
        end(Roots { leader: None, mark });
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::{ADOPTS, Ordering, Roots, workers};
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

    struct Process {
        id: u32,
        parent: u32,
        /// Ended and not waited for.
        zombie: bool,
        marked: bool,
    }

    /// Kills what is there; true where nothing was.
    pub(super) fn kill_round(roots: Roots<'_>) -> bool {
        if let Some(leader) = roots.leader.and_then(pid) {
            let _ = kill_process_group(leader, Signal::KILL);
        }
        // A worker that is being started is no stray: it is registered under this lock.
        let workers = workers();
        let (me, adopts) = (std::process::id(), ADOPTS.load(Ordering::Relaxed));
        let all = processes(roots.mark);
        let is_root = |process: &Process| {
            let stray = adopts && process.parent == me && !workers.contains(&process.id);
            process.id != me && (process.marked || stray || Some(process.id) == roots.leader)
        };
        let mut doomed: Vec<&Process> = all.iter().filter(|process| is_root(process)).collect();
        let mut next = 0;
        while let Some(&Process { id, .. }) = doomed.get(next).copied() {
            next += 1;
            let known = |process: &Process| doomed.iter().any(|doomed| doomed.id == process.id);
            let children = all.iter().filter(|process| process.parent == id);
            let new: Vec<&Process> = children.filter(|process| !known(process)).collect();
            doomed.extend(new);
        }
        let mut none = true;
        for process in doomed {
            let Some(target) = pid(process.id) else {
                continue;
            };
            if !process.zombie {
                none = false;
                let _ = kill_process(target, Signal::KILL);
            } else if adopts && process.parent == me && Some(process.id) != roots.leader {
                let _ = waitpid(Some(target), WaitOptions::NOHANG);
            }
        }
        none
    }

    fn pid(id: u32) -> Option<Pid> {
        Pid::from_raw(i32::try_from(id).ok()?)
    }

    fn processes((name, value): (&str, &str)) -> Vec<Process> {
        let mark = format!("{name}={value}");
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter_map(|id| process(id, mark.as_bytes())).collect()
    }

    /// `None` where it is gone already.
    fn process(id: u32, mark: &[u8]) -> Option<Process> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let state = words.next()?;
        let parent = words.next()?.parse().ok()?;
        // What belongs to somebody else cannot be read, nor killed.
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        let marked = environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == mark);
        let zombie = matches!(state, "Z" | "X");
        Some(Process {
            id,
            parent,
            zombie,
            marked,
        })
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
mod system {
    use super::Roots;
    use rustix::process::{Pid, Signal, kill_process_group};

    /// Without `/proc` only the process group is known.
    pub(super) fn kill_round(roots: Roots<'_>) -> bool {
        let leader = roots.leader.and_then(|id| i32::try_from(id).ok());
        if let Some(leader) = leader.and_then(Pid::from_raw) {
            let _ = kill_process_group(leader, Signal::KILL);
        }
        true
    }
}

#[cfg(not(unix))]
mod system {
    pub(super) fn kill_round(_: super::Roots<'_>) -> bool {
        true
    }
}
