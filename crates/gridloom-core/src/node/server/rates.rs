//! Speeds of the functions that run here, reported to the agent.

use super::*;

impl Server {
    pub(super) fn learn(&mut self, now: Time, task: &Task, run_ns: u64, out: &mut Vec<Effect>) {
        if !self.rates.contains_key(&task.function) {
            self.rates.insert(task.function.clone(), FunctionRate::default());
            let cold_left = self.config.slots;
            self.tallies.insert(task.function.clone(), Tally { cold_left, ..Tally::default() });
        }
        let work_flops = task.work_flops.unwrap_or(0.0);
        let rate = self.rates.get_mut(&task.function).expect("inserted above");
        let tally = self.tallies.get_mut(&task.function).expect("inserted with the rate");
        rate.learn(u64::from(tally.cold_left == 0), 1, work_flops, ns_to_seconds(run_ns.max(1)));
        if tally.cold_left > 0 {
            tally.cold_left -= 1;
            if let Some(agent) = self.agent {
                let function = task.function.clone();
                send(out, agent, Message::Ran { function, cold: true, calls: 1, work_flops, run_ns });
            }
            return;
        }
        tally.calls += 1;
        tally.work_flops += work_flops;
        tally.run_ns += run_ns;
        if !self.rates_timer {
            self.rates_timer = true;
            out.push(Effect::SetTimer { timer: RATES, at: now + RATE_REPORT_NS });
        }
    }

    pub(super) fn report_rates(&mut self, out: &mut Vec<Effect>) {
        self.rates_timer = false;
        let Some(agent) = self.agent else { return };
        for (function, tally) in &mut self.tallies {
            let Tally { calls, work_flops, run_ns, .. } = *tally;
            *tally = Tally { cold_left: tally.cold_left, ..Tally::default() };
            if calls > 0 {
                send(out, agent, Message::Ran { function: function.clone(), cold: false, calls, work_flops, run_ns });
            }
        }
    }
}
