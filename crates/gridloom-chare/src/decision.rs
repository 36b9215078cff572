//! Decides whether chares should move, and where. The first element has the measurements of all elements.
//!
//! Moves pay off if the busiest element saves more time by them, over a period as long as the measured one, than the
//! moves take. If they do not, the next check follows after twice the time: the gain is then twice as large, and the
//! moves cost the same. So they happen once the gain exceeds the cost. This assumes that chares continue to behave as
//! they did in the measured period.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_base::Time;
use gridloom_base::limits::{BALANCE_PERIOD_NS_MAX, BALANCE_PERIOD_NS_MIN};

use super::balance::{Balancer, Load, Loads, SPEED_ONE};
use super::id::{ArrayId, Pe};
use super::load_meter::{LoadReport, Meter};
use super::placement::Elements;

/// Entry methods that must have run per active chare before a measurement counts.
const RUNS_MIN: u64 = 8;
/// Minimum gain as a fraction of the time, 1/16. Less is ignored, because measured times vary.
const GAIN_MIN: u64 = 16;

/// An order for a chare to move to an element.
pub(crate) type Order = (ArrayId, u32, Pe);

/// An element's part in load balancing.
#[derive(Default)]
pub(crate) struct Balancing {
    /// Set if there is a balancer.
    pub(crate) meter: Option<Meter>,
    /// Set on the first of several elements.
    pub(crate) decision: Option<Decision>,
}

pub(crate) struct Decision {
    balancer: &'static Balancer,
    elements: Arc<Elements>,
    period_ns: u64,
    due: Time,
    /// Number of elements that have yet to report their measurements.
    awaited: u32,
    /// Measurements by chare: its element, time, and messages to other sites.
    done: BTreeMap<(ArrayId, u32), (Pe, u64, u64)>,
    /// Time of chares that cannot move, by element.
    fixed_ns: Vec<u64>,
    /// Floating-point operations per second; 0 while unknown.
    speed_flops: Vec<f64>,
    runs: u64,
    /// By element, since the start: the total time of its moves, and their number.
    migration_costs: Vec<(u64, u64)>,
    /// Number of chares that were ordered to move.
    pub(crate) ordered: u64,
    /// Number of elements that have yet to report that they carried out their orders, and the quiescence wave in which
    /// the last order was sent or reported.
    elements_moving: u32,
    active_in: u64,
}

impl Decision {
    pub(crate) fn new(balancer: &'static Balancer, elements: Arc<Elements>, now: Time) -> Decision {
        let count = elements.count() as usize;
        let (awaited, done, runs, ordered, elements_moving, active_in) = Default::default();
        let (period_ns, due) = (BALANCE_PERIOD_NS_MIN, now + BALANCE_PERIOD_NS_MIN);
        let (fixed_ns, speed_flops, migration_costs) = (vec![0; count], vec![0.0; count], vec![(0, 0); count]);
        Decision {
            balancer,
            elements,
            period_ns,
            due,
            awaited,
            done,
            fixed_ns,
            speed_flops,
            runs,
            migration_costs,
            ordered,
            elements_moving,
            active_in,
        }
    }

    /// Returns when to ask all elements next; `None` while they are being asked.
    pub(crate) fn due(&self) -> Option<Time> {
        (self.awaited == 0).then_some(self.due)
    }

    /// Records that all elements are asked.
    pub(crate) fn measuring(&mut self) {
        self.awaited = self.elements.count();
    }

    /// Handles an element's measurements. After the last one, returns the orders by the chares' current elements.
    pub(crate) fn on_measurements(
        &mut self,
        from: Pe,
        measured: LoadReport,
        now: Time,
        may_order: bool,
    ) -> BTreeMap<Pe, Vec<Order>> {
        let LoadReport { chares, fixed_ns, runs, migration_ns: moving_ns, left, speed_flops } = measured;
        for (array, number, busy_ns, far) in chares {
            let (at, busy, all_far) = self.done.entry((array, number)).or_insert((from, 0, 0));
            (*at, *busy, *all_far) = (from, *busy + busy_ns, *all_far + far);
        }
        self.fixed_ns[from.0 as usize] += fixed_ns;
        self.migration_costs[from.0 as usize] = (moving_ns, left);
        if speed_flops > 0.0 && speed_flops.is_finite() {
            self.speed_flops[from.0 as usize] = speed_flops;
        }
        self.runs += runs;
        self.awaited = self.awaited.saturating_sub(1);
        if self.awaited > 0 {
            return BTreeMap::new();
        }
        let orders = if may_order { self.decide() } else { BTreeMap::new() };
        self.due = now + self.period_ns;
        orders
    }

    /// Records that elements were ordered to move chares.
    pub(crate) fn ordered_in(&mut self, wave: u64, elements: u32) {
        if elements > 0 {
            (self.elements_moving, self.active_in) = (self.elements_moving + elements, wave);
        }
    }

    /// Records that one of them has carried out its orders.
    pub(crate) fn completed_in(&mut self, wave: u64) {
        (self.elements_moving, self.active_in) = (self.elements_moving.saturating_sub(1), wave);
    }

    /// Reports whether any element had orders to carry out during that wave or a later one.
    pub(crate) fn is_active_since(&self, wave: u64) -> bool {
        self.elements_moving > 0 || self.active_in >= wave
    }

    fn decide(&mut self) -> BTreeMap<Pe, Vec<Order>> {
        let mut orders: BTreeMap<Pe, Vec<Order>> = BTreeMap::new();
        let is_enough = self.runs >= RUNS_MIN * self.done.len() as u64;
        if is_enough || self.period_ns == BALANCE_PERIOD_NS_MAX {
            let loads = self.take_loads();
            let places = (self.balancer.places)(&loads);
            let [was, is] = [&loads.placement(), &places].map(|places| (self.balancer.cost_ns)(&loads, places));
            let moves = loads.chares.iter().zip(places).filter(|(load, to)| load.element != *to);
            let moves: Vec<(Pe, Order)> =
                moves.map(|(load, to)| (load.element, (load.array, load.number, to))).collect();
            let gain = was.saturating_sub(is);
            if gain > was / GAIN_MIN && gain > moves.len() as u64 * self.move_ns() {
                self.period_ns = BALANCE_PERIOD_NS_MIN;
                self.ordered += moves.len() as u64;
                moves.into_iter().for_each(|(at, order)| orders.entry(at).or_default().push(order));
                return orders;
            }
        }
        self.period_ns = (2 * self.period_ns).min(BALANCE_PERIOD_NS_MAX);
        orders
    }

    fn take_loads(&mut self) -> Loads {
        self.runs = 0;
        let fixed_ns = std::mem::replace(&mut self.fixed_ns, vec![0; self.elements.count() as usize]);
        let done = std::mem::take(&mut self.done).into_iter();
        let load =
            |((array, number), (at, busy_ns, far))| Load { array, number, element: at, busy_ns, remote_messages: far };
        let speeds = relative_speeds(&self.speed_flops);
        Loads { elements: self.elements.clone(), speeds, immovable_ns: fixed_ns, chares: done.map(load).collect() }
    }

    /// Returns the mean time to move a chare, as far as known; otherwise 0.
    fn move_ns(&self) -> u64 {
        let (ns, count) = self.migration_costs.iter().fold((0, 0), |(ns, count), one| (ns + one.0, count + one.1));
        ns.checked_div(count).unwrap_or(0)
    }
}

/// Returns the speed of each element relative to the mean of the known speeds, which is [`SPEED_ONE`]. An element that
/// has not run anything yet is assumed to have the mean speed.
fn relative_speeds(speed_flops: &[f64]) -> Vec<u64> {
    let known = || speed_flops.iter().filter(|speed| **speed > 0.0);
    let mean = known().sum::<f64>() / known().count() as f64;
    let relative = |speed: &f64| match *speed > 0.0 {
        true => ((speed / mean * SPEED_ONE as f64).round() as u64).max(1),
        false => SPEED_ONE,
    };
    speed_flops.iter().map(relative).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one check with two elements: the first reports chares with these times, the second reports none.
    fn look(decision: &mut Decision, busy_ns: &[u64], runs: u64, moving: (u64, u64)) -> BTreeMap<Pe, Vec<Order>> {
        let chares = (0..).zip(busy_ns).map(|(number, busy)| (ArrayId(0), number, *busy, 0)).collect();
        let now = decision.due().unwrap();
        decision.measuring();
        assert_eq!(decision.due(), None);
        let of_first =
            LoadReport { chares, fixed_ns: 0, runs, migration_ns: moving.0, left: moving.1, speed_flops: 0.0 };
        assert!(decision.on_measurements(Pe(0), of_first, now, true).is_empty());
        decision.on_measurements(Pe(1), LoadReport::default(), now, true)
    }

    fn decision() -> Decision {
        Decision::new(Balancer::by_name("refine").unwrap(), Arc::new(Elements::single_site(2)), Time(0))
    }

    #[test]
    fn chares_move_if_the_busiest_element_gains() {
        let mut decision = decision();
        assert!(look(&mut decision, &[1000], 100, (0, 0)).is_empty(), "one chare does as much anywhere");
        let orders = look(&mut decision, &[1000, 1000], 100, (0, 0));
        assert_eq!(orders, BTreeMap::from([(Pe(0), vec![(ArrayId(0), 1, Pe(1))])]));
        assert_eq!(decision.ordered, 1);
    }

    #[test]
    fn speeds_are_reported_with_their_mean() {
        assert_eq!(relative_speeds(&[0.0, 0.0]), [SPEED_ONE; 2]);
        assert_eq!(relative_speeds(&[3e9, 0.0, 1e9]), [SPEED_ONE * 3 / 2, SPEED_ONE, SPEED_ONE / 2]);
    }

    #[test]
    fn an_element_three_times_as_fast_gets_three_of_four_chares() {
        let mut decision = decision();
        let now = decision.due().unwrap();
        decision.measuring();
        let chares = (0..4).map(|number| (ArrayId(0), number, 1000, 0)).collect();
        let of_first = LoadReport { chares, runs: 100, speed_flops: 1e9, ..LoadReport::default() };
        assert!(decision.on_measurements(Pe(0), of_first, now, true).is_empty());
        let of_second = LoadReport { speed_flops: 3e9, ..LoadReport::default() };
        let orders = decision.on_measurements(Pe(1), of_second, now, true);
        assert_eq!(orders[&Pe(0)].len(), 3);
    }

    #[test]
    fn few_runs_are_measured_for_longer() {
        let mut decision = decision();
        assert!(look(&mut decision, &[1000, 1000], 9, (0, 0)).is_empty());
        assert_eq!(look(&mut decision, &[1000, 1000], 9, (0, 0)).len(), 1, "both measurements count");
    }

    #[test]
    fn moves_happen_once_they_gain_more_than_they_take() {
        let mut decision = decision();
        // A move takes 3000 ns. A period of 100 ms gains 1000 ns, the next one 2000 ns.
        for (factor, pays) in [(1, false), (2, false), (4, true)] {
            let before = decision.due().unwrap();
            let orders = look(&mut decision, &[1000 * factor; 2], 100, (30_000, 10));
            assert_eq!(!orders.is_empty(), pays, "{factor}");
            let period = decision.due().unwrap().0 - before.0;
            assert_eq!(period, BALANCE_PERIOD_NS_MIN * if pays { 1 } else { 2 * factor });
        }
    }
}
