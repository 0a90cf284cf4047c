//! Many requests at the same time, on the server and on the model.

use std::future::poll_fn;
use std::task::{Context, Poll};

use leasehold::seam::{Fault, Pending};
use leasehold_spec::{Answer, Contention, Op, Outcome};
use leasehold_testkit::Value;

use crate::rig::{Done, Lock, Rig};

impl Rig {
    /// Runs many requests at the same time on both: each is sent before any is answered (P53). Returns their outcomes, if
    /// the store did anything.
    pub(crate) fn many(&mut self, locks: &mut [Lock], asked: &[(usize, Op)]) -> Vec<Option<Outcome>> {
        for (number, _) in asked {
            self.steer_clear(&mut locks[*number]);
        }
        let scripts_before = self.scripts_run();
        let mut asking: Vec<_> = asked
            .iter()
            .map(|(number, op)| self.link.apply(&locks[*number].name, op, Contention::None.into()))
            .map(MaybeDone::Asking)
            .collect();
        self.runtime.block_on(poll_fn(|context| {
            let pending = asking.iter_mut().fold(0, |pending, one| pending + u32::from(one.is_pending(context)));
            if pending == 0 { Poll::Ready(()) } else { Poll::Pending }
        }));
        let is_together = self.scripts_run() - scripts_before < asked.len() as u64;
        self.count(if is_together { "many in one script" } else { "many alone" });
        let answers: Vec<_> = asking.into_iter().map(MaybeDone::answer).collect();
        let told = answers.iter().map(|one| one.as_ref().cloned().map_err(|fault| format!("{fault:?}"))).collect();
        self.log.push(Done::Many(asked.to_vec(), told));
        let mut due = Vec::new();
        let mut outcomes = Vec::with_capacity(asked.len());
        for ((number, op), answer) in asked.iter().zip(answers) {
            outcomes.push(match answer {
                Ok(answer) => {
                    self.compare(&mut locks[*number], op, &answer, &mut due);
                    Some(answer.outcome)
                }
                Err(Fault::NoMemory(_)) if self.harness.is_full() && matches!(op, Op::Acquire(_)) => {
                    self.count("no memory for one of many");
                    None
                }
                Err(fault) => self.fail(&format!("{fault:?}")),
            });
        }
        asked.iter().for_each(|(number, _)| self.forget(&mut locks[*number]));
        asked.iter().for_each(|(number, _)| self.check_stored(&locks[*number]));
        self.check_deliveries(&due);
        outcomes
    }

    /// Returns the number of scripts that the server has run by their digests.
    fn scripts_run(&mut self) -> u64 {
        let Value::Bulk(text) = self.harness.resp().command(&["INFO", "commandstats"]) else { return 0 };
        let text = String::from_utf8(text).expect("INFO is text");
        let calls = text.split_once("cmdstat_evalsha:calls=").and_then(|(_, rest)| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number of calls"))
    }
}

/// A request, or its answer.
enum MaybeDone {
    Asking(Pending<Result<Answer, Fault>>),
    Done(Result<Answer, Fault>),
}

impl MaybeDone {
    fn is_pending(&mut self, context: &mut Context<'_>) -> bool {
        let Self::Asking(asking) = self else { return false };
        let Poll::Ready(answer) = asking.as_mut().poll(context) else { return true };
        *self = Self::Done(answer);
        false
    }

    fn answer(self) -> Result<Answer, Fault> {
        match self {
            Self::Done(answer) => answer,
            Self::Asking(_) => unreachable!("it was polled to its end"),
        }
    }
}
