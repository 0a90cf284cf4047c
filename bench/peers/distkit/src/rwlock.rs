//! The read-write lock.

use std::sync::Arc;
use std::time::Instant;

use distkit::lock::RwLock;

use crate::Settings;
use crate::task::{Duty, Report, Spec, Tally, is_counted, is_over};
use crate::worker::{Counter, Failure, all_tasks, measure, random};

pub(crate) async fn run(spec: Spec, settings: Settings) -> Result<Report, Failure> {
    let Duty::ReadWrite { writes_percent } = spec.duty else { return Err("it only reads and writes".into()) };
    let counter = Counter::connect(&spec).await?.ok_or("a shared lock needs a counter")?;
    let name = spec.names.of_task(0).ok_or("a shared lock has one name")?;
    let locks = (0..spec.tasks).map(|_| Ok(RwLock::new(settings.options(&name)?)));
    let locks = locks.collect::<Result<Vec<Arc<RwLock>>, Failure>>()?;
    let spec = Arc::new(spec);
    let tasks = all_tasks(&spec, |task, started| {
        one_task(locks[task as usize].clone(), spec.clone(), (task, writes_percent), counter.clone(), started)
    });
    measure(&spec, tasks).await
}

async fn one_task(
    lock: Arc<RwLock>,
    spec: Arc<Spec>,
    (task, writes_percent): (u32, u32),
    mut counter: Counter,
    started: Instant,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut random = random(task)?;
    while !is_over(spec.span, started, tally.pairs) {
        let asked = Instant::now();
        let wait = if random.percent() < writes_percent {
            let guard = lock.write().await?;
            let wait = asked.elapsed();
            counter.count_up().await?;
            tally.writes += 1;
            guard.release().await?;
            wait
        } else {
            let guard = lock.read().await?;
            let wait = asked.elapsed();
            let first = counter.get().await?;
            tally.overlaps += u64::from(first != counter.get().await?);
            guard.release().await?;
            wait
        };
        tally.note(wait.as_micros() as u64, is_counted(spec.span, started));
    }
    Ok(tally)
}
