//! Clients that greet the node, operators that initialize it, and markers that are lost.

use leasehold::ErrorKind;
use leasehold::seam::Script;
use leasehold::seam::node::{Begin, Node};
use leasehold_spec::node::{self, Charter, Marker, rest_ms};
use leasehold_testkit::differential::TTL_TOLERANCE_US;

use crate::decode;
use crate::rig::{CHARTER, Done, MARKER, Rig};
use crate::wire::written;

impl Rig {
    /// Has a client greet the node, whose server reports that it forgets.
    pub(crate) fn greet(&mut self) {
        let opened = self.runtime.block_on(self.node.open(CHARTER));
        let stored = decode::marker(self.harness.resp(), MARKER).unwrap();
        self.log.push(Done::Marker("opened", stored.as_ref().map(|(marker, _)| marker.clone())));
        let run = self.link.run_id().to_owned();
        let entered = |now_us| node::enter(self.marker.as_ref(), CHARTER, &run, true, now_us);
        match opened {
            Ok(link) => {
                let (stored, _) = stored.expect("it was greeted");
                // The time of the script is unknown: a quarantine began then, or the time does not matter.
                let began_us = stored.rests_until_us.saturating_sub(rest_ms(CHARTER.max_lease_ms) * 1000);
                let now_us = self.now_us();
                let began_us = if now_us.abs_diff(began_us) < TTL_TOLERANCE_US { began_us } else { now_us };
                if entered(began_us).as_ref() != Ok(&stored) {
                    self.fail(&format!("entered {:?} instead of {:?}", stored, entered(began_us)));
                }
                self.link.close();
                (self.link, self.seen_marker, self.marker) = (link, stored.clone(), Some(stored));
                self.count("greeted");
            }
            Err(error) => {
                let now_us = self.now_us();
                if entered(now_us).is_ok() || error.kind() != ErrorKind::Invalid {
                    self.fail(&format!("{error:?}"));
                }
                self.count("unlike");
            }
        }
    }

    /// Has an operator initialize the node.
    pub(crate) fn begin(&mut self) {
        let begun = async { self.node.prepare(CHARTER).await?.begin(Begin::Asked).await };
        self.runtime.block_on(begun).unwrap();
        self.marker = Some(node::begin(CHARTER, self.link.run_id(), true));
        self.check_marker("begun");
    }

    /// Has an operator initialize the node, which had this marker at its inspection.
    pub(crate) fn begin_as_asked(&mut self, asked: Option<&Marker>) {
        let run = self.link.run_id().to_owned();
        let of_this_run = asked.filter(|asked| asked.run == run).map(written).unwrap_or_default();
        let charter_text = format!("{:04}{:08}", CHARTER.nodes, CHARTER.max_lease_ms);
        let said = self.harness.resp().command(&[
            "EVALSHA",
            Script::NodeBegin.sha(),
            "1",
            MARKER,
            &charter_text,
            &run,
            "F",
            &of_this_run,
        ]);
        let said = said.text().unwrap_or_else(|| self.fail(&format!("{said:?}"))).to_owned();
        let has_lost = node::has_lost(self.marker.as_ref(), asked, &run);
        match (said.split(' ').next(), has_lost) {
            (Some("MARKED"), false) => self.marker = Some(node::begin(CHARTER, &run, true)),
            (Some("CHANGED"), true) => self.count("changed"),
            _ => self.fail(&format!("{said}, and it is {has_lost} that it has lost what {asked:?} had")),
        }
        self.check_marker("begun");
    }

    /// Has a client greet the node with any run, charter and memory.
    pub(crate) fn greet_as(&mut self, charter: Charter, run: &str, forgets: bool) {
        let charter_text = format!("{:04}{:08}", charter.nodes, charter.max_lease_ms);
        let memory = if forgets { "F" } else { "K" };
        let rest_us = (rest_ms(charter.max_lease_ms) * 1000).to_string();
        let said = self.harness.resp().command(&[
            "EVALSHA",
            Script::NodeEnter.sha(),
            "1",
            MARKER,
            &charter_text,
            run,
            memory,
            &rest_us,
        ]);
        let said = said.text().unwrap_or_else(|| self.fail(&format!("{said:?}"))).to_owned();
        let words: Vec<&str> = said.splitn(3, ' ').collect();
        let entered = node::enter(self.marker.as_ref(), charter, run, forgets, words[1].parse().unwrap());
        match (words[0], entered) {
            ("MARKED", Ok(marker)) => {
                self.marker = Some(marker);
                let text = self.check_marker("entered");
                assert_eq!(words[2], text, "the reply contains the stored marker");
            }
            ("UNLIKE", Err(node::Unlike(other))) => {
                assert_eq!(words[2], format!("{:04}{:08}", other.nodes, other.max_lease_ms));
                self.count("unlike");
            }
            (_, entered) => self.fail(&format!("{said}, and it is to be {entered:?}")),
        }
    }

    /// Deletes the marker, or restores an older one.
    pub(crate) fn put_marker(&mut self, marker: Option<Marker>) {
        self.fill_memory(false);
        match &marker {
            None => drop(self.harness.resp().command(&["DEL", MARKER])),
            Some(marker) => {
                let text = written(marker);
                self.harness.resp().command(&["SET", MARKER, &text]);
            }
        }
        self.marker = marker;
        self.check_marker("put");
    }

    /// Returns the stored marker.
    pub(crate) fn marker(&self) -> Option<Marker> {
        self.marker.clone()
    }

    pub(crate) fn run(&self) -> String {
        self.link.run_id().to_owned()
    }

    fn check_marker(&mut self, what: &'static str) -> String {
        let stored = decode::marker(self.harness.resp(), MARKER).unwrap_or_else(|why| self.fail(&why));
        let (stored, text) = stored.unzip();
        self.log.push(Done::Marker(what, stored.clone()));
        if stored != self.marker {
            self.fail(&format!("the marker is to be {:?}, and it is {stored:?}", self.marker));
        }
        self.count(what);
        text.unwrap_or_default()
    }
}
