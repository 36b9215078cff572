//! Test fixture: two hosts connected by a link of 1 MB/s and 1 ms.

use std::sync::Arc;

use gridloom_flow::{FlowEngine, NetworkModel, Policy, Resources, Timeline};
use gridloom_platform::Platform;

use super::Routes;
use crate::instruments::Instruments;
use crate::kernel::Kernel;

/// The link. Index 0 is the platform's own link for traffic within a host.
pub(super) const LINK: u32 = 1;

pub(super) fn two_hosts() -> (Arc<Platform>, Kernel, Routes) {
    let text = "[[host]]\nname = 'a'\nspeed = '1Gf'\n[[host]]\nname = 'b'\nspeed = '1Gf'\n\
                [[link]]\nname = 'l'\nbandwidth = '1MBps'\nlatency = '1ms'\n\
                [[route]]\nfrom = 'a'\nto = 'b'\nlinks = ['l']\n";
    let platform = Arc::new(Platform::parse(text, "two.toml", &mut |_| Err("no files".into())).unwrap());
    let mut resources = Resources::new();
    for link in platform.links() {
        resources.add_link(link.bandwidth, link.latency_s, Policy::Shared);
    }
    let engine = FlowEngine::new(resources, NetworkModel::WARM_TCP);
    let kernel = Kernel::new(engine, Timeline::new(), Instruments::new(0, platform.links().len()));
    let routes = Routes::new(platform.clone(), NetworkModel::WARM_TCP, 0);
    (platform, kernel, routes)
}
