//! The world as a test has it: this machine's, on the runtime that the test runs on.

use std::io;
use std::time::Duration;

use leasehold::seam::{Address, Pending, Socket, World};
use leasehold_testkit::boottime_us;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

pub(crate) struct TokioWorld;

impl World for TokioWorld {
    fn now_us(&self) -> u64 {
        boottime_us()
    }

    fn wall_us(&self) -> u64 {
        unreachable!("no store that a server keeps asks for our wall clock")
    }

    fn random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the machine has random bytes");
    }

    fn process(&self) -> u32 {
        std::process::id()
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn connect(&self, to: &Address) -> Pending<io::Result<Box<dyn Socket>>> {
        let to = to.clone();
        Box::pin(async move {
            let stream = TcpStream::connect((to.host, to.port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        })
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(task);
                Ok(())
            }
            Err(_) => Err(task),
        }
    }

    fn spawn_session(&self, _: Pending<()>) -> io::Result<()> {
        unreachable!("there is no session here: the store is called directly")
    }
}
