//! The distributed locks of the tutorials, and the schedules that break them.
//!
//! A *specimen* is a lock as its tutorial prints it. A *scene* puts a specimen into processes that share a server, allows
//! some faults, and names the harm that follows. The search of a scene finds a shortest schedule that does this harm, and
//! shows that no schedule of the same faults does it to Leasehold, unless a documented guarantee permits it.
//!
//! ```
//! use leasehold_hazards::scene::{Scene, Timeline};
//!
//! let scene = Scene::find("H1").expect("H1 is a scene");
//! let (schedule, _harm) = scene.break_it().schedule.expect("the lock breaks");
//! for row in Timeline::of(&scene.flawed_search(), &schedule).rows {
//!     println!("{} ms  {}  {}", row.at_ms, row.actor, row.what);
//! }
//! assert!(scene.try_ours().schedule.is_none());
//! ```
#![forbid(unsafe_code)]

pub mod client;
pub mod judge;
#[cfg(feature = "live")]
pub mod live;
pub mod redis;
pub mod report;
pub mod scene;
mod scenes;
pub mod specimens;
pub mod text;
pub mod world;
