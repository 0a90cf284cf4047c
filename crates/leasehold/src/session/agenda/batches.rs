//! The renewals in flight, many in one script.
//!
//! A client of a hundred thousand leases spends its time on renewals. So a batch of them has one alarm, and its attempts
//! have none: nearly every batch is answered in time, and one number is looked up instead of sixteen attempts that are not
//! in the cache.

use super::alarms::Alarms;
use crate::session::counters::CounterMap;

/// How many alarms of answered batches are dropped under one lock.
const IDLE: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// The attempts of each batch.
    in_flight: CounterMap<Vec<u64>>,
    /// The alarm of an unanswered batch: the earliest of its attempts' alarms.
    alarms: Alarms<u64>,
    last: u64,
}

impl Batches {
    /// Notes a batch as sent, and returns its number.
    pub(crate) fn begin(&mut self, attempts: Vec<u64>, alarm_us: u64) -> u64 {
        self.last += 1;
        self.alarms.set(alarm_us, self.last);
        self.in_flight.insert(self.last, attempts);
        self.last
    }

    /// Notes a batch as answered.
    pub(crate) fn end(&mut self, number: u64) {
        self.in_flight.remove(&number);
    }

    /// Returns the next alarm.
    pub(crate) fn next_us(&mut self) -> Option<u64> {
        for _ in 0..IDLE {
            let (at_us, number) = self.alarms.first()?;
            if self.in_flight.contains_key(&number) {
                return Some(at_us);
            }
            self.alarms.pop(at_us);
        }
        self.alarms.next_us()
    }

    /// Removes a batch that was not answered in time, and returns its attempts.
    pub(crate) fn take_overdue(&mut self, now_us: u64) -> Option<Vec<u64>> {
        loop {
            let (_, number) = self.alarms.pop(now_us)?;
            if let Some(attempts) = self.in_flight.remove(&number) {
                return Some(attempts);
            }
        }
    }
}
