//! The level of detail of a drawing: which members have boxes of their own.

use gridloom_platform::Platform;
use gridloom_platform::outline::{Member, Outline};

/// Maximum number of inner zones that are drawn with their content.
const ZONES_MAX: usize = 24;

/// Limits for drawing members one by one.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Maximum number of hosts of a zone.
    pub hosts_max: usize,
    /// True if a zone is drawn as one box with its figures.
    pub is_summary: bool,
}

impl Scale {
    pub fn of(platform: &Platform) -> Scale {
        let hosts_max = match platform.hosts().len() {
            ..=100 => 48,
            101..=400 => 24,
            _ => 8,
        };
        Scale { hosts_max, is_summary: false }
    }

    /// Returns the level of detail for the zones inside a zone.
    pub fn inside(self, outline: &Outline) -> Scale {
        let zones = outline.members.iter().filter(|member| matches!(member, Member::Zone(_))).count();
        Scale { is_summary: self.is_summary || zones > ZONES_MAX, ..self }
    }
}
