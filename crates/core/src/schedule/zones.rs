//! Time zones by IANA name. A name must be spelt exactly, as in the existing operator.

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The zones that schedules may name.
#[derive(Debug, Clone)]
pub struct Zones {
    database: TimeZoneDatabase,
    /// For zones that the database lacks, such as that of an image without zone files.
    bundled: TimeZoneDatabase,
    /// What `Local` means.
    local: TimeZone,
}

impl Zones {
    pub fn new(database: TimeZoneDatabase, local: TimeZone) -> Self {
        Zones { database, bundled: TimeZoneDatabase::bundled(), local }
    }

    /// The zones compiled into this program; `Local` is UTC.
    pub fn bundled() -> Self {
        Zones::new(TimeZoneDatabase::bundled(), TimeZone::UTC)
    }

    /// The zones of this machine, and its own.
    pub fn system() -> Self {
        Zones::new(jiff::tz::db().clone(), TimeZone::system())
    }

    /// The zone of a schedule that names none.
    pub(super) fn local(&self) -> TimeZone {
        self.local.clone()
    }

    /// The zone of this name, or a message.
    pub(super) fn find(&self, name: &str) -> Result<TimeZone, String> {
        match name {
            "" | "UTC" => return Ok(TimeZone::UTC),
            "Local" => return Ok(self.local()),
            _ => {}
        }
        let found = self.database.get(name).or_else(|_| self.bundled.get(name)).ok().filter(|zone| !zone.is_unknown());
        let Some(zone) = found else {
            return Err(format!("{name:?} is not a time zone; write an IANA name such as Europe/Berlin, or UTC"));
        };
        match zone.iana_name() {
            Some(exact) if exact != name => Err(format!("{name:?} is not a time zone; write {exact}")),
            _ => Ok(zone),
        }
    }
}
