//! A buffer of three places, shared by processes that put items in and take them out. Each of them can be killed at any
//! time.

use std::path::Path;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testkit::process::Worker;

use crate::child::Child;
use crate::{LONG, Store, within};

const PLACES: usize = 3;
const ITEMS: u32 = 300;

/// The state that the lock protects: the items in the buffer, and those that were taken out. One file has both, so a
/// process that is killed has moved an item or not.
#[derive(Default)]
struct Buffer {
    items: Vec<u32>,
    taken: Vec<u32>,
}

impl Buffer {
    fn read(file: &str) -> Self {
        let text = std::fs::read_to_string(file).unwrap();
        let (items, taken) = text.split_once('|').unwrap();
        let numbers = |text: &str| text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        Self { items: numbers(items), taken: numbers(taken) }
    }

    /// Atomic, whenever the process is killed.
    fn write(&self, file: &str) {
        let text = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let new = format!("{file}.{}", std::process::id());
        std::fs::write(&new, format!("{}|{}", text(&self.items), text(&self.taken))).unwrap();
        std::fs::rename(&new, file).unwrap();
    }
}

/// Puts the items in, in order.
pub(crate) async fn produce(client: &Leasehold, file: &str, (from, to): (u32, u32)) {
    let (mutex, not_empty, not_full) = (client.mutex("m"), client.condvar("not empty"), client.condvar("not full"));
    for item in from..to {
        let is_full = |_| std::future::ready(Buffer::read(file).items.len() == PLACES);
        let guard = not_full.wait_while(mutex.lock().await.unwrap(), is_full).await.unwrap();
        let mut buffer = Buffer::read(file);
        buffer.items.push(item);
        not_empty.notify_one().await.unwrap();
        buffer.write(file);
        let _ = guard.release().await.unwrap();
    }
    Worker::print("produced");
}

/// Takes items out, until it is killed.
pub(crate) async fn consume(client: &Leasehold, file: &str) {
    let (mutex, not_empty, not_full) = (client.mutex("m"), client.condvar("not empty"), client.condvar("not full"));
    loop {
        let is_empty = |_| std::future::ready(Buffer::read(file).items.is_empty());
        let guard = not_empty.wait_while(mutex.lock().await.unwrap(), is_empty).await.unwrap();
        let mut buffer = Buffer::read(file);
        let item = buffer.items.remove(0);
        buffer.taken.push(item);
        not_full.notify_one().await.unwrap();
        buffer.write(file);
        let _ = guard.release().await.unwrap();
        Worker::print("consumed");
    }
}

/// Consumers are killed at any time, also while they have a notification. The others take all items out, each once. A
/// process notifies under the lock and before its change: if it dies between the two, a waiter wakes up for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn p42_consumers_are_killed_and_every_item_arrives_once() {
    let store = Store::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("buffer");
    let file = path.to_str().unwrap();
    Buffer::default().write(file);
    let mut producers = [Child::start(&store.url()), Child::start(&store.url())];
    for (at, producer) in (0..).zip(&mut producers) {
        producer.send(&format!("produce {file} {} {}", at * ITEMS, (at + 1) * ITEMS));
    }
    let consumer = || {
        let mut consumer = Child::start(&store.url());
        consumer.send(&format!("consume {file}"));
        consumer
    };
    let mut consumers = [consumer(), consumer(), consumer()];
    let (all, mut kills) = (2 * ITEMS as usize, 0);
    let killing = async {
        while is_sound(&path).len() < all {
            tokio::time::sleep(Duration::from_millis(10 + 7 * (kills as u64 % 8))).await;
            let killed = &mut consumers[kills % 3];
            killed.kill();
            *killed = consumer();
            kills += 1;
        }
    };
    within(LONG, "all items", killing).await;
    println!("{kills} consumers were killed");
    producers.iter().for_each(|producer| drop(producer.reads_within(LONG, "produced")));
    let mut taken = is_sound(&path);
    for (at, producer) in (0..).zip(&producers) {
        let _lives = producer;
        let of_it = taken.iter().copied().filter(|item| item / ITEMS == at);
        assert!(of_it.is_sorted(), "{taken:?}");
    }
    taken.sort_unstable();
    assert_eq!(taken, (0..2 * ITEMS).collect::<Vec<_>>());
}

/// Checks the buffer, and returns what was taken out.
fn is_sound(file: &Path) -> Vec<u32> {
    let buffer = Buffer::read(file.to_str().unwrap());
    assert!(buffer.items.len() <= PLACES, "{:?}", buffer.items);
    buffer.taken
}
