//! One worker process, with a limit on how long it may be silent.

use super::RunError;
use crate::backend::port;
use crate::backend::port::tree::{self, Roots};
use crate::worker::protocol::{About, Config, Ending, Reply, Request, reply_in, send};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// How long a worker may take to make its backend ready: drivers and compilers are slow.
pub const START_LIMIT: Duration = Duration::from_secs(300);
/// How much longer than its port a worker may take, to end or to answer.
const PORT_GRACE: Duration = Duration::from_secs(5);
/// How long a worker may take to end once its input is closed.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Replies kept for a parent that is busy.
const REPLIES_WAITING: usize = 1024;

/// How workers are started.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// The `hisa` program.
    pub program: PathBuf,
    /// How long a case may take.
    pub time_limit: Duration,
}

impl Launcher {
    /// Workers of `program`, or where that is absent of this very program.
    ///
    /// # Errors
    /// [`RunError::Program`] where the operating system does not tell what this program is.
    pub fn new(program: Option<&Path>, time_limit: Duration) -> Result<Self, RunError> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => std::env::current_exe().map_err(|source| RunError::Program {
                program: PathBuf::from("hisa"),
                source,
            })?,
        };
        Ok(Self {
            program,
            time_limit,
        })
    }

    /// Starts a worker and waits until it is ready.
    ///
    /// # Errors
    /// [`RunError::Program`], [`RunError::Refused`], and [`RunError::Start`] where it ends or is
    /// silent instead.
    pub fn start(&self, config: &Config) -> Result<Child, RunError> {
        let failed = |source| RunError::Program {
            program: self.program.clone(),
            source,
        };
        let mut command = Command::new(&self.program);
        command.arg("worker");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let is_port = port::command(&config.backend).is_some();
        let mark = is_port.then(tree::mark);
        command.envs(mark.iter().map(|mark| (tree::WORKER, mark)));
        let mut process = tree::spawn_worker(&mut command).map_err(failed)?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(failed(io::Error::other("no pipes")));
        };
        let mut child = Child {
            process,
            stdin: Some(stdin),
            replies: listen(stdout),
            announces: config.announce,
            ending: None,
            about: About::default(),
            exchange: config.port.folder.clone(),
            mark,
        };
        // A worker that is gone already shows in the missing reply.
        let _ = child.tell(config);
        match child.next(START_LIMIT.max(config.port.start_limit.saturating_add(PORT_GRACE))) {
            Ok(Reply::Ready(about)) => {
                child.about = *about;
                Ok(child)
            }
            Ok(Reply::Refused(why)) => Err(RunError::Refused { why }),
            Ok(_) => Err(RunError::Start {
                how: "answered out of turn".to_owned(),
            }),
            Err(loss) => Err(RunError::Start {
                how: loss.to_string(),
            }),
        }
    }
}

/// Reads replies until the pipe closes.
fn listen(stdout: ChildStdout) -> Receiver<Reply> {
    let (sender, replies) = sync_channel(REPLIES_WAITING);
    std::thread::spawn(move || {
        let lines = BufReader::new(stdout).split(b'\n');
        for line in lines.map_while(Result::ok) {
            if reply_in(&line).is_some_and(|reply| sender.send(reply).is_err()) {
                return;
            }
        }
    });
    replies
}

/// How a worker was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// It ended by itself.
    Died {
        /// Exit status or signal, in words.
        how: String,
        /// Whether by the one signal that nothing inside a process causes.
        killed: bool,
    },
    /// Its backend broke, in these words, while jobs ran together.
    Broke(String),
    /// It was silent for longer than a case may take.
    Hung(Duration),
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Died { how, .. } => write!(f, "the process ended: {how}"),
            Self::Broke(why) => f.write_str(why),
            Self::Hung(limit) => write!(f, "no end within {limit:?}"),
        }
    }
}

/// A running worker. Dropping it closes its input, at which it ends, and kills it if it does
/// not.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<Reply>,
    /// Whether it says when a job of the backend begins and ends.
    pub(super) announces: bool,
    /// Why it has ended with its last answer, where it has.
    pub(super) ending: Option<Ending>,
    /// What its backend said of itself.
    pub(super) about: About,
    /// What marks it and all that its port starts.
    mark: Option<String>,
    /// The folder of the run for exchange files.
    exchange: Option<PathBuf>,
}

impl Child {
    fn tell(&mut self, message: &impl serde::Serialize) -> io::Result<()> {
        match &mut self.stdin {
            Some(stdin) => send(stdin, message),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Sends a request. That the worker is gone shows in [`Self::next`].
    pub fn ask(&mut self, request: &Request) {
        if self.tell(request).is_err() {
            self.stdin = None;
        }
    }

    /// The next reply.
    ///
    /// # Errors
    /// [`Loss`]; the process is gone then.
    pub fn next(&mut self, limit: Duration) -> Result<Reply, Loss> {
        match self.replies.recv_timeout(limit) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => {
                self.end();
                Err(Loss::Hung(limit))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.died()),
        }
    }

    /// A worker that closed its output and stays is killed, and counts as ended by itself.
    fn died(&mut self) -> Loss {
        let (how, killed) = match self.ended() {
            Some(status) => (status.to_string(), is_killed(status)),
            None => ("it closed its output".to_owned(), false),
        };
        self.end();
        Loss::Died { how, killed }
    }

    /// Closes the worker's input and waits a while for its end.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.stdin = None;
        let begun = Instant::now();
        let limit = match self.mark {
            Some(_) => END_LIMIT + PORT_GRACE,
            None => END_LIMIT,
        };
        while begun.elapsed() < limit {
            match self.process.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
        None
    }

    fn end(&mut self) {
        self.stdin = None;
        let _ = self.process.kill();
        self.clean();
    }

    /// Waits for a worker that has ended or been killed, and removes what its port left behind.
    fn clean(&mut self) {
        let _ = self.process.wait();
        tree::forget_worker(self.process.id());
        let Some(mark) = self.mark.take() else { return };
        tree::end(Roots {
            leader: None,
            mark: (tree::WORKER, &mark),
        });
        if let Some(run) = &self.exchange {
            let _ = std::fs::remove_dir_all(run.join(mark));
        }
    }

    /// How long a case or job may take that has `limit`: a port is to notice first.
    pub(super) fn allowed(&self, limit: Duration) -> Duration {
        match self.mark {
            Some(_) => limit.saturating_add(PORT_GRACE),
            None => limit,
        }
    }
}

#[cfg(unix)]
fn is_killed(status: ExitStatus) -> bool {
    const SIGKILL: i32 = 9;
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGKILL)
}

#[cfg(not(unix))]
fn is_killed(_: ExitStatus) -> bool {
    false
}

impl Drop for Child {
    fn drop(&mut self) {
        match self.ended() {
            Some(_) => self.clean(),
            None => self.end(),
        }
    }
}
