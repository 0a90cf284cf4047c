//! The run: servers, services, load, count.

use std::io;
use std::time::Duration;

use leasehold_hazards::live::{self, Server};
use redis::Cmd;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::Args;
use crate::load::{self, Bounds, Tally};
use crate::plan::{self, Plan};
use crate::process::Service;
use crate::report::Report;
use crate::stock::{self, Stock};

/// A process is stopped for this much longer than its lease, so that the others can sell.
const BEYOND_THE_LEASE: Duration = Duration::from_secs(2);
/// The time from the end of a wait for the lock until the reply must be there.
const SPARE: Duration = Duration::from_secs(20);

/// Runs the shop once.
pub(crate) fn run(args: &Args) -> Result<Report, String> {
    let own = match args.redis.is_empty() {
        true => live::version()
            .and_then(|_| (0..args.lock.servers()).map(|_| Server::with_port()).collect::<Result<_, _>>()),
        false => Ok(vec![]),
    };
    let own: Vec<Server> = own.map_err(|error| error.to_string())?;
    let given = args.redis.iter().map(|url| plan::address(url)).collect::<Result<Vec<_>, _>>()?;
    let servers: Vec<String> = own.iter().filter_map(Server::address).chain(given).collect();
    if servers.len() < args.lock.servers() {
        return Err(format!("{} needs {} servers: use --redis for each", args.lock.name(), args.lock.servers()));
    }
    let plan = Plan::new(args, servers);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let listen = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
        let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        tokio::select! {
            report = sell(args, &plan) => report,
            () = either(&mut interrupt, &mut terminate) => Err("interrupted".into()),
        }
    })
}

async fn either(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

async fn sell(args: &Args, plan: &Plan) -> Result<Report, String> {
    let stock = Stock::open(plan).await?;
    stock.fill(args.stock).await?;
    let mut services = Vec::new();
    for _ in 0..args.processes {
        services.push(Service::start(plan).await?);
    }
    let (tally, stopped_for) = hammer(args, plan, &mut services).await?;
    let left = stock.count().await?;
    for service in services {
        service.end().await;
    }
    stock.clear().await?;
    for server in &plan.servers {
        clear(&format!("redis://{server}"), &plan.lock_key()).await?;
    }
    Ok(Report {
        plan: plan.clone(),
        processes: args.processes,
        clients: args.clients,
        stock: args.stock,
        left,
        tally,
        stopped_for,
    })
}

/// Hammers the services. One of them is stopped meanwhile, if the command line says so.
async fn hammer(args: &Args, plan: &Plan, services: &mut [Service]) -> Result<(Tally, Option<Duration>), String> {
    let addresses: Vec<_> = services.iter().map(|service| service.address).collect();
    let stop_for = Duration::from_secs(plan.lease_s) + BEYOND_THE_LEASE;
    let bounds = Bounds {
        clients: args.clients.into(),
        time: Duration::from_secs(args.seconds),
        reply_within: plan.limit + plan.work + stop_for + SPARE,
    };
    let Some(first) = services.first_mut().filter(|_| args.pause) else {
        return Ok((load::hammer(&addresses, bounds).await, None));
    };
    let failed = |error: io::Error| format!("cannot stop a process in its sale: {error}");
    first.order_stop().await.map_err(failed)?;
    // The first process starts alone. With an unfair lock it could otherwise sell nothing before the others have sold all.
    let rest = async {
        first.stop_in_the_sale().await.map_err(failed)?;
        let (tally, stopped_for) = tokio::join!(load::hammer(&addresses, bounds), first.go_on_after(stop_for));
        Ok::<_, String>((tally, stopped_for.map_err(failed)?))
    };
    let (one, rest) = tokio::join!(load::buy_once(addresses[0], bounds.reply_within), rest);
    let (mut tally, stopped_for) = rest?;
    tally.add(one);
    Ok((tally, Some(stopped_for)))
}

/// Removes the key of a lock of the tutorials. Leasehold's own keys expire by themselves.
async fn clear(url: &str, key: &str) -> Result<(), String> {
    let failed = |error| format!("cannot remove the lock from {url}: {error}");
    let mut connection = stock::connect(url).await.map_err(failed)?;
    Cmd::del(key).query_async(&mut connection).await.map_err(failed)
}
