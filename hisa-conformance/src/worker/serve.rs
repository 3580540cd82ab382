//! The worker process: requests in, replies out, until standard input closes or the backend is
//! broken.

use super::Worker;
use super::announce::Announcing;
use super::protocol::{Config, Reply, Request, reply};
use crate::backend::port;
use crate::op::Op;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::channel;

/// Answers requests from `lines`, the first of which is the configuration, to `out`.
///
/// # Errors
/// What the writer refuses. A line that is no request is answered with [`Reply::Refused`].
pub fn serve<W>(lines: impl IntoIterator<Item = String>, out: &W) -> io::Result<()>
where
    W: Clone + Write + Send + 'static,
{
    let mut lines = lines.into_iter();
    let Some(first) = lines.next() else {
        return Ok(());
    };
    let mut out = out.clone();
    let mut worker = match configured(&first, &out) {
        Ok(worker) => worker,
        Err(why) => return reply(&mut out, &Reply::Refused(why)),
    };
    reply(&mut out, &Reply::Ready(Box::new(worker.about().clone())))?;
    for line in lines {
        let answer = match serde_json::from_str::<Request>(&line) {
            Ok(request) => {
                let mut start = |at| {
                    // A parent that does not listen any more is noticed at the next reply.
                    let _ = reply(&mut out, &Reply::Start(at));
                };
                let answer = worker.answer(&request, &mut start);
                answer.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => Reply::Refused(why),
        };
        let ending = worker.ending();
        if let Some(ending) = ending.clone() {
            reply(&mut out, &Reply::Ending(ending))?;
        }
        if worker.in_doubt() {
            // As if it had crashed: the case runs again, job by job, in a worker that tells.
            break;
        }
        reply(&mut out, &answer)?;
        if ending.is_some() {
            break;
        }
    }
    Ok(())
}

fn configured<W>(line: &str, out: &W) -> Result<Worker, String>
where
    W: Clone + Write + Send + 'static,
{
    let config: Config = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let worker = if config.announce {
        let mut out = out.clone();
        let tell = move |op: Option<Op>| {
            let said = op.map_or(Reply::Idle, |op| Reply::Op(op.name().to_owned()));
            let _ = reply(&mut out, &said);
        };
        Worker::with(&config, |inner| Box::new(Announcing { inner, tell }))
    } else {
        Worker::new(&config)
    };
    worker.map_err(|error| error.to_string())
}

/// Standard output, as often as it is needed.
#[derive(Debug, Clone, Copy)]
struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// Serves standard input and output of this process, on one thread.
///
/// The process ends as soon as standard input closes, even in the middle of a case: a parent
/// that is gone leaves no worker behind, not even one whose backend hangs.
///
/// # Errors
/// As [`serve`].
pub fn serve_process() -> io::Result<()> {
    // What a backend says when it panics is in the finding.
    std::panic::set_hook(Box::new(|_| {}));
    // The parent runs a worker per core. A pool of this very thread needs no hand-over. Where
    // there is a pool already, the results are the same.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1);
    let _ = pool.use_current_thread().build_global();
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        port::end_all();
        std::process::exit(0);
    });
    serve(lines, &Out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::protocol::reply_in;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn replies(lines: &[String]) -> Vec<Reply> {
        let out = Shared::default();
        serve(lines.to_vec(), &out).unwrap();
        let bytes = out.0.lock().unwrap();
        let lines = bytes.split(|&byte| byte == b'\n');
        lines.filter_map(reply_in).collect()
    }

    fn json(value: &impl serde::Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn one_case_is_announced_and_answered() {
        let config = Config::new("reference", &[Op::Windows, Op::Dsa], 5).announcing();
        let request = Request::Address(crate::case::Case::with_cu(&[0, 2, 5]).to_string());
        let replies = replies(&[json(&config), json(&request)]);
        assert!(matches!(&replies[0], Reply::Ready(about) if about.arithmetic == "exact"));
        assert_eq!(replies[1], Reply::Start(0));
        assert_eq!(replies[2], Reply::Op("windows".into()));
        let Some(Reply::Done(summary)) = replies.last() else {
            panic!("{replies:?}")
        };
        assert_eq!((summary.total_cases(), summary.findings_total), (1, 0));
        let passed = |op| {
            let checks = crate::check::CHECKS.iter().zip(&summary.tallies);
            let of_op = checks.filter(|(check, _)| check.op == op);
            of_op.map(|(_, tally)| tally.passed).sum::<u64>()
        };
        assert!(passed(Op::Windows) > 0 && passed(Op::Dsa) > 0);
        assert_eq!(passed(Op::Hisa), 0);
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        let refused = |lines: &[String]| match replies(lines).pop() {
            Some(Reply::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(refused(&[json(&Config::new("none", &[], 1))]).contains("\"none\""));
        let config = json(&Config::new("reference", &[Op::Dsa], 1));
        assert!(refused(&[config.clone(), "{}".into()]).contains("expected"));
        let request = Request::Address("hisa:M=1".into());
        assert!(refused(&[config, json(&request)]).contains("missing"));
    }
}
