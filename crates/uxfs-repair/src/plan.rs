//! The plan of a repair: what is wrong, what it becomes, what is lost, and every byte that changes.
//!
//! 1. A plan is whole before anything is written: it comes from a volume that was repaired in memory
//!    and found sound there.
//! 2. [`Plan::changes`] lists each sector that differs once, in ascending order, with the bytes before
//!    and after. A step refers to its sectors by their place.
//!
//! Made by [`crate::plan`]; applied by [`crate::apply`]; saved and read as JSON.

use core::fmt;
use core::fmt::Write as _;

use serde_json::{Map, Value, json};
use uxfs_check::Place;
use uxfs_format::{AgBlock, AgNo, Ino, Uuid};

use crate::error::{RepairError, Result};

/// Bytes of a sector of a plan.
pub const SECTOR: usize = 512;
/// The version of the JSON form.
const VERSION: u64 = 1;

/// One step of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// XFS' name of the structure.
    pub structure: String,
    /// Where it is.
    pub place: Place,
    /// What is wrong with it.
    pub wrong: String,
    /// What it becomes.
    pub becomes: String,
    /// What is lost by that; one line each.
    pub lost: Vec<String>,
    /// The parts of the device that the step writes: offset and length in bytes.
    pub writes: Vec<(u64, u64)>,
}

/// A sector that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Offset on the device in bytes.
    pub offset: u64,
    /// The bytes before the repair.
    pub before: Vec<u8>,
    /// The bytes after it.
    pub after: Vec<u8>,
}

/// A repair as data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// UUID of the volume.
    pub uuid: Uuid,
    /// Length of the device in bytes.
    pub len: u64,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The sectors that change, in ascending order.
    pub changes: Vec<Change>,
}

impl Plan {
    /// Is there nothing to repair?
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What is lost, over all steps.
    pub fn lost(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().flat_map(|step| &step.lost).map(String::as_str)
    }

    /// The plan as JSON: `version`, `uuid`, `bytes`, `steps`, `changes`. With `content` false, the
    /// bytes of the changes are left out.
    pub fn to_json(&self, content: bool) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.into(), value);
        put("version", VERSION.into());
        put("uuid", self.uuid.to_string().into());
        put("bytes", self.len.into());
        put("steps", self.steps.iter().map(step_json).collect());
        let change = |change: &Change| match content {
            true => json!({
                "offset": change.offset,
                "before": hex(&change.before),
                "after": hex(&change.after),
            }),
            false => json!({ "offset": change.offset, "length": change.before.len() }),
        };
        put("changes", self.changes.iter().map(change).collect());
        map
    }

    /// Reads the JSON form with its content.
    ///
    /// # Errors
    /// [`RepairError::Mismatch`] if it is not a plan of this version.
    pub fn from_json(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| RepairError::Mismatch(format!("not a plan: {error}")))?;
        read(&value).ok_or_else(|| {
            RepairError::Mismatch(format!("not a plan of version {VERSION}, or not whole"))
        })
    }
}

fn read(value: &Value) -> Option<Plan> {
    if value.get("version")?.as_u64()? != VERSION {
        return None;
    }
    let mut plan = Plan {
        uuid: value.get("uuid")?.as_str()?.parse().ok()?,
        len: value.get("bytes")?.as_u64()?,
        ..Plan::default()
    };
    for step in value.get("steps")?.as_array()? {
        plan.steps.push(read_step(step)?);
    }
    let mut end = 0;
    for change in value.get("changes")?.as_array()? {
        let bytes = |key: &str| unhex(change.get(key)?.as_str()?);
        let change = Change {
            offset: change.get("offset")?.as_u64()?,
            before: bytes("before")?,
            after: bytes("after")?,
        };
        let len = change.before.len();
        let whole = len == change.after.len() && (1..=SECTOR).contains(&len);
        if !whole || change.offset < end || change.offset.checked_add(len as u64)? > plan.len {
            return None;
        }
        end = change.offset + len as u64;
        plan.changes.push(change);
    }
    Some(plan)
}

fn step_json(step: &Step) -> Value {
    let mut at = Map::new();
    if let Some(ag) = step.place.ag {
        at.insert("ag".into(), ag.0.into());
    }
    if let Some(block) = step.place.block {
        at.insert("block".into(), block.0.into());
    }
    if let Some(ino) = step.place.inode {
        at.insert("inode".into(), ino.0.into());
    }
    if let Some(path) = &step.place.path {
        at.insert("path".into(), String::from_utf8_lossy(path).into());
    }
    json!({
        "structure": step.structure,
        "place": at,
        "wrong": step.wrong,
        "becomes": step.becomes,
        "lost": step.lost,
        "writes": step.writes.iter().map(|(at, len)| json!([at, len])).collect::<Vec<_>>(),
    })
}

fn read_step(step: &Value) -> Option<Step> {
    let text = |key: &str| Some(step.get(key)?.as_str()?.to_owned());
    let at = step.get("place")?;
    let number = |key: &str| at.get(key).and_then(Value::as_u64);
    let place = Place {
        ag: number("ag").and_then(|ag| u32::try_from(ag).ok()).map(AgNo),
        block: number("block").and_then(|block| u32::try_from(block).ok()).map(AgBlock),
        inode: number("inode").map(Ino),
        path: at.get("path").and_then(Value::as_str).map(|path| path.as_bytes().to_vec()),
    };
    let mut read = Step {
        structure: text("structure")?,
        place,
        wrong: text("wrong")?,
        becomes: text("becomes")?,
        ..Step::default()
    };
    for lost in step.get("lost")?.as_array()? {
        read.lost.push(lost.as_str()?.to_owned());
    }
    for write in step.get("writes")?.as_array()? {
        read.writes.push((write.get(0)?.as_u64()?, write.get(1)?.as_u64()?));
    }
    Some(read)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
    text.as_bytes().chunks(2).map(pair).collect()
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: {}; {}", self.structure, self.place, self.wrong, self.becomes)?;
        for lost in &self.lost {
            write!(f, "\n  lost: {lost}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_plan_reads_back() {
        let step = Step {
            structure: "inode".into(),
            place: Place { path: Some(b"/a".to_vec()), ..Place::inode(Ino(131)) },
            wrong: "w".into(),
            becomes: "b".into(),
            lost: vec!["l".into()],
            writes: vec![(512, 512)],
        };
        let change = Change { offset: 512, before: vec![0; 512], after: vec![0xa5; 512] };
        let plan =
            Plan { uuid: Uuid([7; 16]), len: 4096, steps: vec![step], changes: vec![change] };
        let text = Value::from(plan.to_json(true)).to_string();
        assert_eq!(Plan::from_json(&text).unwrap(), plan);
        for broken in [text.replace("4096", "600"), text.replace("a5a5", "a5"), "{}".into()] {
            assert!(Plan::from_json(&broken).is_err());
        }
    }
}
