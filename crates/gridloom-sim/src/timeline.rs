//! Converts a platform's profiles to the flow engine's timeline.

use gridloom_flow::{HostIndex, LinkIndex, Quantity, Timeline};
use gridloom_platform::{Platform, ProfileKind, ProfileTarget};

/// Returns the profiles of a platform, in order.
pub(crate) fn timeline(platform: &Platform) -> Timeline {
    let mut timeline = Timeline::new();
    for profile in platform.profiles() {
        let quantity = match (profile.target, profile.kind) {
            (ProfileTarget::Host(host), ProfileKind::State) => Quantity::HostState(HostIndex(host.0)),
            (ProfileTarget::Host(host), _) => Quantity::Speed(HostIndex(host.0)),
            (ProfileTarget::Link(link), ProfileKind::State) => Quantity::LinkState(LinkIndex(link.0)),
            (ProfileTarget::Link(link), ProfileKind::Latency) => Quantity::Latency(LinkIndex(link.0)),
            (ProfileTarget::Link(link), _) => Quantity::Bandwidth(LinkIndex(link.0)),
        };
        timeline.add(quantity, profile.events.clone(), profile.loop_after_s);
    }
    timeline
}
