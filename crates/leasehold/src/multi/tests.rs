//! The order in which members are taken, and how long they are held (P45).

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::*;
use crate::client::Leasehold;

const SOON: Duration = Duration::from_secs(10);

fn play(test: impl Future<Output = Result<()>>) {
    Runtime::new().expect("a runtime").block_on(test).expect("no error");
}

async fn clients(store: &str) -> Result<[Leasehold; 2]> {
    Ok([Leasehold::connect(store).await?, Leasehold::connect(store).await?])
}

/// Returns once a call waits for this mutex.
async fn waits_for(client: &Leasehold, name: &str) -> Result<()> {
    let waiting = async {
        while client.mutex(name).inspect().await?.waiters == 0 {
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    };
    timeout(SOON, waiting).await.expect("it waits soon")
}

/// The program names z before x. It waits for x, which is held, and holds nothing meanwhile.
#[test]
fn p45_members_are_taken_in_the_order_of_their_names() {
    play(async {
        let [ours, other] = clients("memory:order").await?;
        let held = other.mutex("x").lock().await?;
        let both = all([ours.mutex("z"), ours.mutex("x")]);
        let waiting = tokio::spawn(async move { both.lock().await });
        waits_for(&other, "x").await?;
        assert!(other.mutex("z").try_lock().await?.is_some(), "z is held, and x is awaited");
        drop(held);
        let guard = timeout(SOON, waiting).await.expect("both are free").expect("no panic")?;
        assert_eq!(guard.tokens().len(), 2);
        Ok(())
    });
}

/// The members belong to two clients, and another program takes them in the other order.
#[test]
fn p45_a_multi_lock_lets_go_while_it_waits_for_another_client() {
    play(async {
        let [ours, other] = clients("memory:another").await?;
        let second = Leasehold::connect("memory:another").await?;
        let held = other.mutex("y").lock().await?;
        let lease = Duration::from_millis(200);
        let both = all([ours.mutex("x").lease(lease), second.mutex("y").lease(lease)]);
        let waiting = tokio::spawn(async move { both.lock().await });
        waits_for(&other, "y").await?;
        let first = timeout(SOON, other.mutex("x").lock()).await.expect("it lets go")?;
        drop((first, held));
        let guard = timeout(SOON, waiting).await.expect("both are free").expect("no panic")?;
        assert_eq!(guard.release().await?, crate::Released::Released);
        Ok(())
    });
}

/// The second member has the shorter lease. It ends, and with it the multi-lock.
#[test]
fn p47_the_lease_that_ends_first_counts() {
    play(async {
        let client = Leasehold::connect("memory:").await?;
        let (short, long) = (Duration::from_millis(200), Duration::from_secs(60));
        let guard = all([client.mutex("a").fixed_lease(long), client.mutex("b").fixed_lease(short)]).lock().await?;
        assert!(guard.remaining() <= short && guard.grace() <= short, "{guard:?}");
        let lost = timeout(SOON, guard.lost()).await.expect("b has ended");
        assert_eq!((lost.name(), guard.check().map_err(|lost| lost.name().to_owned())), ("b", Err("b".to_owned())));
        assert_eq!((guard.remaining(), guard.grace()), (Duration::ZERO, Duration::ZERO));
        assert!(client.mutex("a").try_lock().await?.is_none(), "the other member stays held");
        assert_eq!(guard.release().await?, crate::Released::NotHeld);
        assert!(client.mutex("a").try_lock().await?.is_some());
        Ok(())
    });
}

#[test]
fn the_minimum_holds_of_all_members_are_waived() {
    play(async {
        let client = Leasehold::connect("memory:").await?;
        let member = |name: &str| client.mutex(name).min_hold(Duration::from_secs(60));
        for waives in [false, true] {
            let guard = all([member(&format!("a {waives}")), member(&format!("b {waives}"))]).lock().await?;
            if waives {
                guard.waive_min_hold();
            }
            assert_eq!(guard.release().await?, crate::Released::Released);
            for name in ["a", "b"] {
                let is_free = client.mutex(format!("{name} {waives}")).try_lock().await?.is_some();
                assert_eq!(is_free, waives, "{name}");
            }
        }
        Ok(())
    });
}

/// A member that was acquired and given back has kept nobody out: the caller had no guard.
#[test]
fn p23_members_that_no_caller_got_do_not_cool_down() {
    play(async {
        let [ours, other] = clients("memory:untaken").await?;
        let member = |name: &str| ours.mutex(name).min_hold(Duration::from_secs(60));
        let held = other.mutex("b").lock().await?;
        assert!(all([member("a"), member("b")]).try_lock().await?.is_none());
        let a = timeout(SOON, other.mutex("a").lock()).await.expect("a is free")?;
        drop((a, held));
        // The owner of an outer guard does not lose its minimum hold by a multi-lock that fails.
        let owner = crate::Owner::new();
        let outer = member("c").owner(&owner).lock().await?;
        let held = other.mutex("d").lock().await?;
        assert!(all([member("c").owner(&owner), member("d")]).try_lock().await?.is_none());
        drop((outer, held));
        assert!(timeout(Duration::from_millis(300), other.mutex("c").lock()).await.is_err(), "c cools down");
        Ok(())
    });
}

/// Each round over two clients takes one member for too short a time. If it cooled down, no round would ever get both.
#[test]
fn p23_a_multi_lock_with_minimum_holds_gets_its_members() {
    play(async {
        let [ours, other] = clients("memory:cools").await?;
        let second = Leasehold::connect("memory:cools").await?;
        let (lease, hold) = (Duration::from_millis(200), Duration::from_secs(4));
        let member = |client: &Leasehold, name: &str| client.mutex(name).lease(lease).min_hold(hold);
        let both = all([member(&ours, "x"), member(&second, "y")]);
        let held = other.mutex("y").lock().await?;
        let waiting = tokio::spawn(async move { both.lock().await });
        waits_for(&other, "y").await?;
        // It gives x back, and waits for y. Both are free before a member that cooled down would be.
        let x = timeout(hold / 2, other.mutex("x").lock()).await.expect("x does not cool down")?;
        drop((x, held));
        timeout(hold / 2, waiting).await.expect("both are free").expect("no panic")?.waive_min_hold();
        Ok(())
    });
}

/// A connection breaks while the members are put in order. Another order could close a circle with another program.
#[test]
fn p45_the_members_of_one_client_have_one_store() {
    play(async {
        let client = Leasehold::connect("memory:").await?;
        let looks = std::cell::Cell::new(0);
        let store_id = |_: &Acquirer| {
            looks.set(looks.get() + 1);
            if looks.get() == 1 { "run".to_owned() } else { String::new() }
        };
        assert_eq!(all(["a", "b"].map(|name| client.mutex(name))).order(store_id)?, [0, 1]);
        Ok(())
    });
}
