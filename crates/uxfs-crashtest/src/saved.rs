//! A recorded run in a directory, so that a state repeats exactly, without the program.
//!
//! `before.img` is the disk before the run, `writes` the bytes of all writes in their order, and
//! `run.json` the order of events. What the program did to its files is not saved.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use uxfs_disk::{BlockDev, MemDev};
use uxfs_testkit::{Event, Recording};

use crate::error::{Error, Result};
use crate::operations::Operations;
use crate::recorder::{Mark, Run};
use crate::test::save;

impl Run {
    /// Saves the run in a directory, which is made.
    ///
    /// # Errors
    /// Those of the host.
    pub fn save(&self, dir: &Path) -> std::io::Result<()> {
        fs::create_dir_all(dir)?;
        save(&self.before, &dir.join("before.img"))?;
        let mut writes = Vec::new();
        let events = self.recording.events().iter().map(|event| match event {
            Event::Write { offset, data, fua } => {
                writes.extend_from_slice(data);
                json!({ "write": offset, "len": data.len(), "fua": fua })
            }
            Event::Flush => json!("flush"),
            Event::Mark(Mark::Started) => json!("started"),
            Event::Mark(Mark::Acknowledged(number)) => json!({ "acknowledged": number }),
            Event::Mark(Mark::Operation(number)) => json!({ "operation": number }),
            Event::Mark(Mark::Ended) => json!("ended"),
        });
        let document = json!({
            "sector": self.recording.sector(),
            "events": events.collect::<Vec<_>>(),
            "acks": self.acks,
        });
        fs::write(dir.join("writes"), writes)?;
        fs::write(dir.join("run.json"), document.to_string())
    }

    /// A run that was saved.
    ///
    /// # Errors
    /// Those of the host; it is damaged.
    pub fn load(dir: &Path) -> Result<Self> {
        let host = |error| Error::host(&format!("recording {}", dir.display()), error);
        let damaged = || Error::new(format!("recording {}: run.json is damaged", dir.display()));
        let before = load_disk(&dir.join("before.img")).map_err(host)?;
        let writes = fs::read(dir.join("writes")).map_err(host)?;
        let text = fs::read(dir.join("run.json")).map_err(host)?;
        let document: Value = serde_json::from_slice(&text).map_err(|_| damaged())?;
        let array = |key: &str| document[key].as_array().ok_or_else(damaged);
        let mut left = writes.as_slice();
        let mut events = Vec::new();
        let acks = array("acks")?.iter().map(|ack| ack.as_str().unwrap_or_default().to_owned());
        let acks: Vec<String> = acks.collect();
        let has_ack = |event: &Event<Mark>| match event {
            Event::Mark(Mark::Acknowledged(number)) => (1..=acks.len()).contains(number),
            _ => true,
        };
        for event in array("events")? {
            let found = event_of(event, &mut left).filter(|event| lies_in(event, before.len()));
            events.push(found.filter(has_ack).ok_or_else(damaged)?);
        }
        let sector = document["sector"].as_u64().filter(|bytes| *bytes > 0);
        let sector = sector.and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(damaged)?;
        let recording = Recording::new(before.clone(), events, sector);
        Ok(Self { recording, before, acks, operations: Operations::default() })
    }
}

/// An event; the bytes of a write are taken from `left`.
fn event_of(event: &Value, left: &mut &[u8]) -> Option<Event<Mark>> {
    let number = |key: &str| event[key].as_u64().and_then(|number| usize::try_from(number).ok());
    if let Some(word) = event.as_str() {
        return match word {
            "flush" => Some(Event::Flush),
            "started" => Some(Event::Mark(Mark::Started)),
            "ended" => Some(Event::Mark(Mark::Ended)),
            _ => None,
        };
    }
    if let Some(offset) = event["write"].as_u64() {
        let (data, rest) = left.split_at_checked(number("len")?)?;
        *left = rest;
        return Some(Event::Write { offset, data: data.into(), fua: event["fua"].as_bool()? });
    }
    let ack = number("acknowledged").map(Mark::Acknowledged);
    ack.or_else(|| number("operation").map(Mark::Operation)).map(Event::Mark)
}

fn lies_in(event: &Event<Mark>, len: u64) -> bool {
    match event {
        Event::Write { offset, data, .. } => {
            offset.checked_add(data.len() as u64).is_some_and(|end| end <= len)
        }
        _ => true,
    }
}

fn load_disk(path: &Path) -> std::io::Result<MemDev> {
    use std::os::unix::fs::FileExt;
    let file = fs::File::open(path)?;
    let disk = MemDev::new(file.metadata()?.len());
    let mut bytes = vec![0; 1 << 20];
    let mut at = 0;
    while at < disk.len() {
        let len = usize::try_from(disk.len() - at).unwrap_or(usize::MAX).min(bytes.len());
        file.read_exact_at(&mut bytes[..len], at)?;
        if bytes[..len].iter().any(|byte| *byte != 0) {
            disk.write_at(at, &bytes[..len])?;
        }
        at += len as u64;
    }
    Ok(disk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    fn run() -> Run {
        let before = MemDev::new(1 << 20);
        before.write_at(70_000, &[9; 10]).unwrap();
        let recorder = Recorder::new(before.clone(), 1 << 20);
        recorder.write_at(5, &[1, 2, 3]).unwrap();
        recorder.acknowledge("one");
        recorder.flush().unwrap();
        recorder.write_at(600, &[4; 600]).unwrap();
        recorder.ended();
        recorder.finish(before)
    }

    #[test]
    fn a_saved_run_has_the_same_states() {
        let dir = tempfile::tempdir().unwrap();
        let run = run();
        run.save(dir.path()).unwrap();
        let loaded = Run::load(dir.path()).unwrap();
        assert_eq!(loaded.acks, run.acks);
        assert_eq!(loaded.recording.events(), run.recording.events());
        let bytes = |run: &Run| {
            let mut bytes = vec![0; 1 << 20];
            run.recording.state(run.recording.len(), &[]).read_at(0, &mut bytes).unwrap();
            bytes
        };
        assert!(bytes(&loaded) == bytes(&run));
    }

    #[test]
    fn damage_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = || Run::load(dir.path()).err().unwrap().to_string();
        assert!(refused().contains("No such file"));
        run().save(dir.path()).unwrap();
        fs::write(dir.path().join("writes"), [1]).unwrap();
        assert!(refused().contains("damaged"));
        run().save(dir.path()).unwrap();
        // An acknowledgement that is not there.
        let document = dir.path().join("run.json");
        let text = fs::read_to_string(&document).unwrap();
        for number in ["9", "0"] {
            let other = format!("\"acknowledged\":{number}");
            let changed = text.replace("\"acknowledged\":1", &other);
            assert!(changed != text);
            fs::write(&document, changed).unwrap();
            assert!(refused().contains("damaged"), "{number}");
        }
        run().save(dir.path()).unwrap();
        fs::File::options()
            .write(true)
            .open(dir.path().join("before.img"))
            .unwrap()
            .set_len(512)
            .unwrap();
        assert!(refused().contains("damaged"));
    }
}
