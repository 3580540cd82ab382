//! The three pipes of a port, each with a thread of its own, so that no port can make this side
//! wait longer than it wants to.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest line of a port, in bytes, its end not counted.
pub const LINE_MAX: usize = 1 << 20;
/// Bytes of standard error that are kept.
const SAID_MAX: usize = 64 << 10;
/// Lines of a port that wait to be read.
const LINES_WAITING: usize = 16;

/// What comes out of a port, and what became of its pipes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// A line longer than [`LINE_MAX`]; nothing is read after it.
    TooLong,
    /// The output ended within a line.
    Torn(Vec<u8>),
    /// The output ended.
    Closed,
    /// The input does not take what is written.
    Deaf,
}

/// Reads lines until the pipe closes.
pub(super) fn listen(stdout: ChildStdout) -> (SyncSender<Line>, Receiver<Line>) {
    let (sender, lines) = sync_channel(LINES_WAITING);
    let out = sender.clone();
    std::thread::spawn(move || {
        let mut stdout = BufReader::with_capacity(16 << 10, stdout);
        loop {
            let line = next_line(&mut stdout);
            let last = !matches!(line, Line::Whole(_));
            if out.send(line).is_err() || last {
                return;
            }
        }
    });
    (sender, lines)
}

fn next_line(stdout: &mut impl BufRead) -> Line {
    let mut line = Vec::new();
    let limited = stdout
        .take(LINE_MAX as u64 + 1)
        .read_until(b'\n', &mut line);
    match (limited, line.last()) {
        (Ok(_), Some(b'\n')) => {
            line.pop();
            Line::Whole(line)
        }
        (Ok(_), _) if line.len() > LINE_MAX => Line::TooLong,
        (_, Some(_)) => Line::Torn(line),
        (_, None) => Line::Closed,
    }
}

/// Writes lines until the sender is dropped, which closes the pipe.
pub(super) fn speak(mut stdin: ChildStdin, trouble: SyncSender<Line>) -> Sender<Vec<u8>> {
    let (sender, lines) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for line in lines {
            if stdin.write_all(&line).and_then(|()| stdin.flush()).is_err() {
                let _ = trouble.send(Line::Deaf);
                return;
            }
        }
    });
    sender
}

/// The end of what a port said on standard error.
#[derive(Debug, Default)]
pub(super) struct Said {
    state: Mutex<SaidState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SaidState {
    kept: VecDeque<u8>,
    /// Bytes in all.
    total: u64,
    closed: bool,
}

impl Said {
    /// Collects until the pipe closes.
    pub(super) fn collect(mut stderr: ChildStderr) -> Arc<Self> {
        let said = Arc::new(Self::default());
        let shared = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut chunk = vec![0; SAID_MAX];
            loop {
                let read = stderr.read(&mut chunk).unwrap_or(0);
                shared.add(&chunk[..read]);
                if read == 0 {
                    return;
                }
            }
        });
        said
    }

    fn state(&self) -> MutexGuard<'_, SaidState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: &[u8]) {
        let mut state = self.state();
        state.kept.extend(bytes);
        let surplus = state.kept.len().saturating_sub(SAID_MAX);
        state.kept.drain(..surplus);
        state.total += bytes.len() as u64;
        state.closed |= bytes.is_empty();
        self.changed.notify_all();
    }

    /// Bytes so far.
    pub(super) fn total(&self) -> u64 {
        self.state().total
    }

    /// Waits for the end of the pipe, but no longer than `limit`.
    pub(super) fn wait_closed(&self, limit: Duration) {
        let state = self.state();
        drop(
            self.changed
                .wait_timeout_while(state, limit, |state| !state.closed),
        );
    }

    /// Waits for more than `since` bytes, but no longer than `limit`.
    pub(super) fn wait_more(&self, since: u64, limit: Duration) {
        let state = self.state();
        let none = |state: &mut SaidState| state.total <= since && !state.closed;
        drop(self.changed.wait_timeout_while(state, limit, none));
    }

    /// The last lines of what came after the first `since` bytes, shortened.
    pub(super) fn tail(&self, since: u64) -> Vec<String> {
        const LINES: usize = 12;
        const CHARACTERS: usize = 400;
        let state = self.state();
        let new = usize::try_from(state.total - since.min(state.total)).unwrap_or(usize::MAX);
        let skipped = state.kept.len().saturating_sub(new);
        let bytes: Vec<u8> = state.kept.iter().skip(skipped).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let lines = lines.into_iter().filter(|line| !line.is_empty());
        let lines: Vec<String> = lines
            .map(|line| line.chars().take(CHARACTERS).collect())
            .collect();
        lines[lines.len().saturating_sub(LINES)..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_they_end() {
        let long = vec![b'x'; LINE_MAX];
        let mut input = b"{}\n\nhalf".to_vec();
        let read = |bytes: &mut &[u8]| next_line(bytes);
        let mut rest = &input[..];
        assert_eq!(read(&mut rest), Line::Whole(b"{}".to_vec()));
        assert_eq!(read(&mut rest), Line::Whole(Vec::new()));
        assert_eq!(read(&mut rest), Line::Torn(b"half".to_vec()));
        assert_eq!(read(&mut rest), Line::Closed);
        input = [&long[..], b"\n"].concat();
        assert_eq!(read(&mut &input[..]), Line::Whole(long.clone()));
        input = [&long[..], b"x\n"].concat();
        assert_eq!(read(&mut &input[..]), Line::TooLong);
    }

    #[test]
    fn only_the_end_of_what_is_said_is_kept() {
        let said = Said::default();
        said.add(b"before\n");
        let since = said.total();
        said.add(&vec![b'y'; 3 * SAID_MAX]);
        said.add(b"\nlast but one\n\nlast");
        assert_eq!(said.state().kept.len(), SAID_MAX);
        let tail = said.tail(since);
        assert_eq!(tail[tail.len() - 2..], ["last but one", "last"]);
        let said = Said::default();
        said.add(b"before\n");
        let since = said.total();
        assert!(said.tail(since).is_empty());
        said.add(b"after\n");
        assert_eq!(said.tail(since), ["after"]);
    }
}
