//! An HTTP service: `POST /buy` sells one piece.
//!
//! | Status | Meaning |
//! |---|---|
//! | 200 | sold |
//! | 409 | sold out |
//! | 412 | the lease was lost, or the stock refused the token: not sold |
//! | 503 | the lock was not available in time |
//! | 500 | something failed |
//!
//! The workers are tasks of one thread, because a lock of the tutorials stays on its thread. A request goes to a worker
//! through a channel.

use std::io::{self, BufRead as _, BufReader};
use std::process::{self, ExitCode};
use std::rc::Rc;
use std::thread;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};
use tokio::task::{LocalSet, spawn_local};

use crate::plan::Plan;
use crate::sale::{Sale, Shop};

/// The order to stop in the next sale.
pub(crate) const STOP: &str = "stop in the next sale";
/// The reply to [`STOP`].
pub(crate) const WILL_STOP: &str = "will stop";
/// The order to go on with the sale.
pub(crate) const GO_ON: &str = "go on";

/// A request, as the place where its result goes.
type Request = oneshot::Sender<Sale>;

/// Serves until the standard input ends. Then the process ends at once: its manager has ended, or needs it no longer.
pub(crate) fn serve() -> Result<ExitCode, String> {
    let mut lines = BufReader::new(io::stdin()).lines().map_while(Result::ok);
    let plan = lines.next().ok_or("--serve is internal: it reads a plan from the standard input")?;
    let plan: Plan = serde_json::from_str(&plan).map_err(|error| format!("this is not a plan: {error}"))?;
    let (given, orders) = unbounded_channel();
    thread::spawn(move || {
        for line in lines {
            let _sent = given.send(line);
        }
        process::exit(0);
    });
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    LocalSet::new().block_on(&runtime, open(&plan, orders))?;
    Ok(ExitCode::SUCCESS)
}

async fn open(plan: &Plan, mut orders: UnboundedReceiver<String>) -> Result<(), String> {
    let shop = Rc::new(Shop::open(plan).await?);
    let (requests, queue) = unbounded_channel();
    let queue = Rc::new(Mutex::new(queue));
    for _ in 0..plan.workers {
        spawn_local(work(Rc::clone(&shop), Rc::clone(&queue)));
    }
    let failed = |error: io::Error| format!("cannot serve: {error}");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    println!("{}", listener.local_addr().map_err(failed)?);
    spawn_local(async move {
        while let Some(order) = orders.recv().await {
            match &*order {
                STOP => {
                    shop.stop.want();
                    println!("{WILL_STOP}");
                }
                GO_ON => shop.stop.go_on(),
                _ => {}
            }
        }
    });
    axum::serve(listener, Router::new().route("/buy", post(buy)).with_state(requests)).await.map_err(failed)
}

/// A worker: sells one piece for each request.
async fn work(shop: Rc<Shop>, queue: Rc<Mutex<UnboundedReceiver<Request>>>) {
    let client = shop.client();
    loop {
        let Some(request) = queue.lock().await.recv().await else { return };
        // A client that has gone needs no reply.
        let _sent = request.send(shop.buy(&client).await);
    }
}

async fn buy(State(requests): State<UnboundedSender<Request>>) -> StatusCode {
    let (request, sale) = oneshot::channel();
    let _sent = requests.send(request);
    match sale.await {
        Ok(Sale::Sold) => StatusCode::OK,
        Ok(Sale::SoldOut) => StatusCode::CONFLICT,
        Ok(Sale::Refused) => StatusCode::PRECONDITION_FAILED,
        Ok(Sale::NoLock) => StatusCode::SERVICE_UNAVAILABLE,
        Ok(Sale::Failed(why)) => {
            eprintln!("shop: a sale failed: {why}");
            StatusCode::INTERNAL_SERVER_ERROR
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
