//! One running port: lines to it and from it, and its end.

use super::folder::Place;
use super::pipes::{LINE_MAX, Line, Said, listen, speak};
use super::tree::{self, Roots};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a port may take to end once its input is closed.
pub const END_LIMIT: Duration = Duration::from_secs(2);
/// How long a port that has closed a pipe is given to be gone.
const GONE_LIMIT: Duration = Duration::from_millis(300);
/// How often a silent port is looked after.
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// How long the last words of a dead port are waited for.
const WORDS_LIMIT: Duration = Duration::from_millis(300);

/// The ports of this process that may be running.
static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every port of this process and removes its files. For a process that is about to end.
pub(crate) fn end_all() {
    let live = std::mem::take(&mut *lock(&LIVE));
    for shared in live.iter().filter_map(Weak::upgrade) {
        shared.end();
        shared.clean();
    }
}

/// Why a port is of no more use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Break {
    /// No reply in time.
    Hung(Duration),
    /// It is gone, or has closed a pipe.
    Gone(String),
    /// It said something else than what it was asked.
    Said(String),
}

impl std::fmt::Display for Break {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hung(limit) => write!(f, "no end within {limit:?}"),
            Self::Gone(how) => write!(f, "the port is gone: {how}"),
            Self::Said(what) => write!(f, "the port broke the protocol: {what}"),
        }
    }
}

/// A running port. Dropping it ends it and all it started, and removes its folder.
#[derive(Debug)]
pub(super) struct Process {
    shared: Arc<Shared>,
    lines: Receiver<Line>,
    said: Arc<Said>,
}

/// What ends a port, from any thread.
#[derive(Debug)]
struct Shared {
    mark: String,
    child: Mutex<Child>,
    leader: u32,
    input: Mutex<Option<Sender<Vec<u8>>>>,
    /// Whether it owes a reply.
    busy: AtomicBool,
    /// How it ended; held while it is being ended.
    ended: Mutex<Option<Option<ExitStatus>>>,
    place: Mutex<Option<Place>>,
}

impl Process {
    /// Starts a command through the shell, in a process group of its own.
    ///
    /// # Errors
    /// As the operating system.
    pub(super) fn start(command: &str, place: Place) -> io::Result<Self> {
        let mark = tree::mark();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).env(tree::PORT, &mark);
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut child = shell.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("no pipes"));
        };
        let (trouble, lines) = listen(stdout);
        let shared = Arc::new(Shared {
            mark,
            leader: child.id(),
            child: Mutex::new(child),
            input: Mutex::new(Some(speak(stdin, trouble))),
            busy: AtomicBool::new(false),
            ended: Mutex::new(None),
            place: Mutex::new(Some(place)),
        });
        let mut live = lock(&LIVE);
        live.retain(|other| other.strong_count() > 0);
        live.push(Arc::downgrade(&shared));
        let said = Said::collect(stderr);
        Ok(Self {
            shared,
            lines,
            said,
        })
    }

    /// Sends a line and waits for the next one. After an error the port is gone.
    ///
    /// # Errors
    /// [`Break`].
    pub(super) fn ask(&mut self, line: Vec<u8>, limit: Duration) -> Result<Vec<u8>, Break> {
        match self.lines.try_recv() {
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(self.gone()),
            Ok(Line::Whole(line)) => {
                let what = format!("a line nobody asked for: {}", shown(&line));
                return Err(self.broke(what));
            }
            Ok(line) => return Err(self.no_line(&line)),
        }
        self.shared.busy.store(true, Ordering::Relaxed);
        let sent = lock(&self.shared.input)
            .as_ref()
            .map(|input| input.send(line));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.gone());
        }
        match self.next(limit) {
            Ok(Line::Whole(line)) => {
                self.shared.busy.store(false, Ordering::Relaxed);
                Ok(line)
            }
            Ok(line) => Err(self.no_line(&line)),
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                Err(Break::Hung(limit))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
    }

    /// The next line. A port that has ended need not have closed its output: a child of its own
    /// may hold the pipe.
    fn next(&self, limit: Duration) -> Result<Line, RecvTimeoutError> {
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left.min(LOOK_AFTER)) {
                Err(RecvTimeoutError::Timeout) if left > LOOK_AFTER => {}
                other => return other,
            }
            if self.shared.wait(Duration::ZERO).is_some() {
                // What it wrote before it ended may still be on its way.
                let last = self.lines.recv_timeout(LOOK_AFTER);
                return last.or(Err(RecvTimeoutError::Disconnected));
            }
        }
    }

    /// Ends a port that said something else than what it was asked.
    pub(super) fn broke(&mut self, what: String) -> Break {
        self.kill();
        Break::Said(what)
    }

    fn no_line(&mut self, line: &Line) -> Break {
        match line {
            Line::TooLong => self.broke(format!("a line of more than {LINE_MAX} bytes")),
            Line::Torn(line) => {
                let status = self
                    .shared
                    .wait(GONE_LIMIT)
                    .map(|status| status.to_string());
                self.kill();
                let status = status.unwrap_or_else(|| "it closed its output".to_owned());
                Break::Gone(format!("{status}, within the line {}", shown(line)))
            }
            Line::Whole(line) => self.broke(shown(line)),
            Line::Closed => self.gone(),
            Line::Deaf => match self.shared.wait(GONE_LIMIT) {
                Some(_) => self.gone(),
                None => {
                    self.kill();
                    Break::Gone("it closed its input".to_owned())
                }
            },
        }
    }

    /// What became of a port whose output has ended.
    fn gone(&mut self) -> Break {
        let status = self.shared.wait(GONE_LIMIT);
        self.kill();
        let how = status.map_or_else(|| "it closed its output".to_owned(), |s| s.to_string());
        Break::Gone(how)
    }

    fn kill(&mut self) {
        self.shared.busy.store(true, Ordering::Relaxed);
        self.shared.end();
        self.said.wait_closed(WORDS_LIMIT);
    }

    /// Where its exchange files go; empty once it is gone.
    pub(super) fn with_folder<T>(&self, use_it: impl FnOnce(&Path) -> T) -> Option<T> {
        let place = lock(&self.shared.place);
        place.as_ref().map(|place| use_it(place.path()))
    }

    /// What it said on standard error.
    pub(super) fn said(&self) -> &Said {
        &self.said
    }
}

/// The beginning of a line for a message.
pub(super) fn shown(line: &[u8]) -> String {
    const BYTES: usize = 80;
    let text = String::from_utf8_lossy(&line[..line.len().min(BYTES)]);
    let more = if line.len() > BYTES { "..." } else { "" };
    format!("{text:?}{more}")
}

impl Drop for Process {
    fn drop(&mut self) {
        self.shared.end();
        self.shared.clean();
    }
}

impl Shared {
    /// The exit status, where there is one within `limit`.
    fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            match lock(&self.child).try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if begun.elapsed() < limit => {}
                _ => return None,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Removes the folder. The lock is held meanwhile, so that no thread ends the process before.
    fn clean(&self) {
        let mut place = lock(&self.place);
        *place = None;
    }

    /// Closes the input; waits a while for a port that owes nothing; then kills all that is left
    /// of it.
    fn end(&self) {
        let mut ended = lock(&self.ended);
        if ended.is_some() {
            return;
        }
        drop(lock(&self.input).take());
        if !self.busy.load(Ordering::Relaxed) {
            self.wait(END_LIMIT);
        }
        let mark = (tree::PORT, self.mark.as_str());
        tree::end(Roots {
            leader: Some(self.leader),
            mark,
        });
        *ended = Some(self.wait(GONE_LIMIT));
    }
}
