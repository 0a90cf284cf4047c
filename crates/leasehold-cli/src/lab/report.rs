//! `leasehold lab report`: one page with a figure of each schedule.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use leasehold_hazards::report;
use leasehold_hazards::scene::Scene;

use crate::exit::{Exit, Failure};
use crate::show;

pub(super) fn run(dir: &Path) -> Result<Exit, Failure> {
    let (page, draft) = (dir.join("index.html"), dir.join(".index.html.new"));
    // Before the searches, so that a directory that cannot be written costs no minute.
    fs::create_dir_all(dir).map_err(|error| failure(dir, &error))?;
    let is_writable = File::create(&draft).and_then(|_| fs::remove_file(&draft));
    is_writable.map_err(|error| failure(&page, &error))?;
    if !is_free(&page).map_err(|error| failure(&page, &error))? {
        let page = page.display();
        return Err(Failure::own(format!("{page} exists and is no report of the lab; name another directory")));
    }
    let mut results = Vec::new();
    for scene in Scene::all() {
        show::warn(&format!("searching {}: {}", scene.id, scene.title));
        results.push((scene, scene.search()));
    }
    // An earlier report remains whole until the new one is.
    let written = fs::write(&draft, report::page(&results)).and_then(|()| fs::rename(&draft, &page));
    written.map_err(|error| failure(&page, &error))?;
    show::print(&[page.display().to_string()])
}

/// Whether the page does not exist, or is an earlier report.
fn is_free(page: &Path) -> io::Result<bool> {
    match fs::read(page) {
        Ok(bytes) => Ok(bytes.windows(report::GENERATOR.len()).any(|part| part == report::GENERATOR.as_bytes())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::own(format!("cannot write {}: {error}; name a directory that you can write to", path.display()))
}
