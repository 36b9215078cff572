//! Prints a testbed's report.

use anyhow::Result;
use gridloom_testbed::report::Report;

use crate::commands::print_line;

pub fn print(report: &Report) -> Result<()> {
    let traffic = &report.traffic;
    print_line(&format!("testbed: {:.1} s, {} hosts", traffic.elapsed_s, report.hosts.len()))?;
    for host in &report.hosts {
        print_line(&format!("host {:<24} {}", host.name, host.address))?;
    }
    for link in &report.links {
        let (bandwidth, latency, carried) = (link.bandwidth / 1e6, link.latency_s * 1e6, link.bytes / 1e6);
        let cut = if link.is_up { "" } else { ", cut" };
        print_line(&format!(
            "link {:<24} {bandwidth:>10.3} MB/s {latency:>10.1} us: {carried:.3} MB, {} lost{cut}",
            link.name,
            link.dropped_full + link.dropped_cut
        ))?;
    }
    print_line(&format!(
        "forwarder: {} packets, {:.1} us late on average, {:.0} us at most, {:.2} s of processor time",
        traffic.delivered, traffic.late_us_mean, traffic.late_us_max, traffic.processor_s
    ))?;
    if traffic.is_late() {
        print_line(&format!(
            "warning: {} packets late by more than 1 ms and {} lost because processor time was missing: the results \
             reflect this machine rather than the platform",
            traffic.late, traffic.lost
        ))?;
    }
    let processors = &report.processors;
    if processors.are_limit() {
        let missed = processors.missed_s.iter().filter_map(|(host, missed_s)| {
            Some(format!("; host '{}' had less than its quota for {missed_s:.1} s", report.hosts.get(*host)?.name))
        });
        print_line(&format!(
            "warning: all processors of this machine were busy for {:.1} s of {:.1} s{}: the results reflect this \
             machine rather than the platform",
            processors.full_s,
            processors.watched_s,
            missed.collect::<String>()
        ))?;
    }
    Ok(())
}
