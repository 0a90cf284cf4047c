//! The contents of the rows before the change.

use std::future::Future;
use std::time::Duration;

use leasehold::Leasehold;
use tokio::task::{AbortHandle, JoinSet};

use crate::eventually;

/// The contents of the rows before the change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scene {
    Mutex,
    Revoked,
    CoolingDown,
    Released,
    Readers,
    Upgrade,
    Semaphore,
    Condvar,
    Latch,
    Barrier,
}

pub(super) const SCENES: &[Scene] = &[
    Scene::Mutex,
    Scene::Revoked,
    Scene::CoolingDown,
    Scene::Released,
    Scene::Readers,
    Scene::Upgrade,
    Scene::Semaphore,
    Scene::Condvar,
    Scene::Latch,
    Scene::Barrier,
];

/// The remains of a scene: guards of any kind, and tasks that wait.
#[derive(Default)]
pub(super) struct Props {
    pub(super) guards: Vec<Box<dyn Send>>,
    pub(super) tasks: JoinSet<()>,
    pub(super) waiting: Vec<AbortHandle>,
}

impl Props {
    pub(super) fn waits<T: Send + 'static>(&mut self, waiting: impl Future<Output = T> + Send + 'static) {
        let task = self.tasks.spawn(async move { drop(waiting.await) });
        self.waiting.push(task);
    }
}

impl Scene {
    /// Sets the scene.
    pub(super) async fn set(self, clients: &[Leasehold; 2], name: &str) -> Props {
        let mut props = Props::default();
        let waiters = match self {
            Self::Mutex | Self::Revoked | Self::CoolingDown | Self::Released => {
                self.set_mutex(clients, name, &mut props).await
            }
            _ => self.set_pool(clients, name, &mut props).await,
        };
        let looks = clients[1].mutex(name);
        eventually("they wait", async || looks.inspect().await.unwrap().waiters == waiters).await;
        props
    }

    /// Returns the number of waiters.
    async fn set_mutex(self, [a, b]: &[Leasehold; 2], name: &str, props: &mut Props) -> usize {
        match self {
            Self::Mutex => {
                props.guards.push(Box::new(a.mutex(name).lock().await.unwrap()));
                let (one, other) = (b.mutex(name), b.mutex(name).fair());
                props.waits(async move { one.lock().await });
                props.waits(async move { other.lock().await });
                2
            }
            Self::Revoked => {
                props.guards.push(Box::new(a.mutex(name).lock().await.unwrap()));
                let one = b.mutex(name);
                let holder = one.inspect().await.unwrap().holder().cloned().unwrap();
                one.revoke(&holder, Duration::from_secs(5)).await.unwrap();
                props.waits(async move { one.lock().await });
                1
            }
            Self::CoolingDown => {
                let mutex = a.mutex(name).min_hold(Duration::from_secs(5));
                let _ = mutex.lock().await.unwrap().release().await.unwrap();
                0
            }
            Self::Released => {
                let _ = a.mutex(name).lock().await.unwrap().release().await.unwrap();
                0
            }
            _ => unreachable!("{self:?} has no mutex"),
        }
    }

    async fn set_pool(self, [a, b]: &[Leasehold; 2], name: &str, props: &mut Props) -> usize {
        match self {
            Self::Readers => {
                for client in [a, b] {
                    props.guards.push(Box::new(client.rw_lock(name).read().await.unwrap()));
                }
                let writes = b.rw_lock(name);
                props.waits(async move { writes.write().await });
                1
            }
            Self::Upgrade => {
                props.guards.push(Box::new(b.rw_lock(name).read().await.unwrap()));
                let reads = a.rw_lock(name).upgradeable_read().await.unwrap();
                props.waits(async move { reads.upgrade().await });
                1
            }
            Self::Semaphore => {
                for client in [a, b] {
                    props.guards.push(Box::new(client.semaphore(name, 3).acquire().await.unwrap()));
                }
                let waits = b.semaphore(name, 3);
                props.waits(async move { waits.acquire_many(3).await });
                1
            }
            Self::Condvar => {
                let (condvar, mutex) = (a.condvar(name), a.mutex(format!("{name} m")));
                let guard = mutex.lock().await.unwrap();
                props.waits(async move { condvar.wait(guard).await });
                1
            }
            Self::Latch => {
                a.latch(name).create(3).await.unwrap();
                a.latch(name).count_down_as("a part").await.unwrap();
                let waits = b.latch(name);
                props.waits(async move { waits.wait().await });
                1
            }
            Self::Barrier => {
                let waits = a.barrier(name, 3);
                props.waits(async move { waits.wait().await });
                1
            }
            _ => unreachable!("{self:?} has no pool"),
        }
    }
}
