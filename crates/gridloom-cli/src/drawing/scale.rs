//! How large a platform is drawn: which members have boxes of their own.

use gridloom_platform::Platform;
use gridloom_platform::outline::{Member, Outline};

/// Zones in a zone that are drawn with what is in them.
const ZONES_MAX: usize = 24;

/// Which members are drawn one by one.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Hosts of a zone.
    pub hosts_max: usize,
    /// Whether a zone is a box with its figures.
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

    /// For the zones in one.
    pub fn inside(self, outline: &Outline) -> Scale {
        let zones = outline.members.iter().filter(|member| matches!(member, Member::Zone(_))).count();
        Scale { is_summary: self.is_summary || zones > ZONES_MAX, ..self }
    }
}
