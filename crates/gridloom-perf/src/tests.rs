//! Tests of curves and of how they are learned.

use super::*;
use gridloom_base::SplitMix64;
use gridloom_base::limits::MODEL_POINTS_MAX;

fn point(size: f64, seconds: f64) -> Point {
    Point { size, seconds, spread_s: 0.0, calls: 1 }
}

fn learned(calls: &[(f64, f64)]) -> FunctionModel {
    let mut learner = Learner::default();
    calls.iter().for_each(|(work, seconds)| learner.learn(Size::Work(*work), *seconds, 1.0, false));
    learner.model()
}

#[track_caller]
fn is_about(model: &FunctionModel, work: f64, seconds: f64, is_extrapolated: bool) {
    let found = model.predict(Size::Work(work), Some(f64::MIN_POSITIVE)).unwrap();
    assert!((found.seconds - seconds).abs() <= 1e-9 * seconds, "{work}: {found:?}, not {seconds}");
    assert_eq!(found.is_extrapolated, is_extrapolated, "{work}");
}

#[test]
fn time_is_linear_between_points_and_marked_as_a_guess_beyond_them() {
    let model = learned(&[(100.0, 2.0), (200.0, 3.0), (400.0, 7.0)]);
    is_about(&model, 150.0, 2.5, false);
    is_about(&model, 300.0, 5.0, false);
    // Along the line of the first two, and of the last two.
    is_about(&model, 50.0, 1.5, true);
    is_about(&model, 800.0, 15.0, true);
}

#[test]
fn one_point_is_a_rate() {
    let model = learned(&[(100.0, 2.0)]);
    is_about(&model, 50.0, 1.0, true);
    is_about(&model, 300.0, 6.0, true);
    is_about(&model, 104.0, 2.08, false);
    assert_eq!(FunctionModel::default().seconds(Size::Work(5e8), Some(1e9)), 0.5);
}

#[test]
fn outliers_count_for_nothing_and_changes_are_learned() {
    let mut calls = vec![(100.0, 1.0); 8];
    calls[4].1 = 50.0;
    is_about(&learned(&calls), 100.0, 1.0, false);
    calls.extend([(100.0, 3.0); 5]);
    is_about(&learned(&calls), 100.0, 3.0, false);
    let mut learner = Learner::default();
    calls.iter().for_each(|(work, seconds)| learner.learn(Size::Work(*work), *seconds, 1.0, false));
    assert_eq!(learner.model().accuracy.outliers, 5, "the one and the first four of the change");
}

#[test]
fn cold_calls_are_forgotten_as_soon_as_there_is_better() {
    let mut learner = Learner::default();
    learner.learn(Size::Work(100.0), 9.0, 1.0, true);
    is_about(&learner.model(), 100.0, 9.0, false);
    learner.learn(Size::Work(1000.0), 10.0, 1.0, false);
    // The cold point is gone: the warm point at 1000 predicts size 100 better.
    is_about(&learner.model(), 100.0, 1.0, true);
    learner.learn(Size::Work(10.0), 7.0, 1.0, true);
    is_about(&learner.model(), 10.0, 0.1, true);
}

#[test]
fn what_is_learned_is_monotone_and_bounded() {
    let mut rng = SplitMix64::new(5);
    for _ in 0..200 {
        let mut learner = Learner::default();
        for _ in 0..rng.below(200) {
            let work = rng.below(1_000_000) as f64;
            let seconds = (0.001 + work * 1e-6) * (0.5 + rng.unit());
            learner.learn(Size::Work(work), seconds, 1.0, rng.below(4) == 0);
        }
        let model = learner.model();
        assert!(model.is_sane() && model.by_work.points.len() <= MODEL_POINTS_MAX);
        let seconds: Vec<f64> =
            (0..1000).filter_map(|n| model.by_work.predict(f64::from(n) * 1500.0, 1e-9)).map(|p| p.seconds).collect();
        assert!(seconds.windows(2).all(|pair| pair[0] <= pair[1]), "{model:?}");
    }
}

#[test]
fn a_curve_of_many_sizes_keeps_its_shape() {
    // Three times slower per unit of work once it exceeds the cache.
    let truth = |work: f64| if work < 5e5 { work * 1e-6 } else { 0.5 + (work - 5e5) * 3e-6 };
    let mut rng = SplitMix64::new(7);
    let mut learner = Learner::default();
    for _ in 0..2000 {
        let work = 1e4 + rng.unit() * 1e6;
        learner.learn(Size::Work(work), truth(work), 1.0, false);
    }
    let model = learner.model();
    for step in 1..100 {
        let work = 1e4 * f64::from(step);
        let found = model.predict(Size::Work(work), Some(f64::MIN_POSITIVE)).unwrap().seconds;
        assert!((found / truth(work) - 1.0).abs() < 0.1, "{work}: {found}, truth {}", truth(work));
    }
}

#[test]
fn calls_without_a_complexity_are_distinguished_by_their_bytes() {
    let mut learner = Learner::default();
    learner.learn(Size::Bytes(1000), 1.0, 1.0, false);
    learner.learn(Size::Bytes(2000), 2.0, 1.0, false);
    let model = learner.model();
    assert_eq!(model.seconds(Size::Bytes(1500), None), 1.5);
    assert_eq!(model.predict(Size::Work(1500.0), None), None);
}

#[test]
fn models_of_several_servers_are_one() {
    let (a, b) = (learned(&[(100.0, 1.0), (100.0, 1.0), (100.0, 1.0)]), learned(&[(100.0, 2.0), (300.0, 8.0)]));
    let merged = FunctionModel::merge([(&a, 1.0), (&b, 1.0)].into_iter());
    is_about(&merged, 100.0, 1.25, false);
    is_about(&merged, 300.0, 8.0, false);
    let half = FunctionModel::merge([(&a, 0.5)].into_iter());
    is_about(&half, 100.0, 0.5, false);
}

#[test]
fn a_stored_model_is_replaced_by_measurements() {
    let kept = learned(&[(100.0, 1.0), (100.0, 1.0), (200.0, 2.0)]);
    let mut learner = Learner::resume(&kept);
    is_about(&learner.model(), 100.0, 1.0, false);
    (0..2).for_each(|_| learner.learn(Size::Work(100.0), 1.4, 1.0, false));
    is_about(&learner.model(), 100.0, 1.4, false);
}

#[test]
fn times_with_concurrent_tasks_are_distinguished_from_times_alone() {
    let mut learner = Learner::default();
    let spent = |work: f64, tasks: f64| work * 1e-3 * (1.0 + 0.5 * (tasks - 1.0));
    let mut call = |work: f64, tasks: f64, calls: usize| {
        (0..calls).for_each(|_| learner.learn(Size::Work(work), spent(work, tasks), tasks, false));
        learner.model()
    };
    // Only full servers were observed: their times are the best guess.
    let model = call(1000.0, 4.0, 5);
    is_about(&model, 1000.0, 2.5, false);
    assert!(!model.perturbation.is_significant());
    // Two calls alone may be noise.
    is_about(&call(1000.0, 1.0, 2), 1000.0, 2.5, false);
    let model = call(1000.0, 1.0, 1);
    is_about(&model, 1000.0, 1.0, false);
    assert!((model.perturbation.factor(4.0) - 2.5).abs() < 1e-9, "{model:?}");
    // Another size that was only observed beside others, and one between two numbers of tasks.
    is_about(&call(2000.0, 4.0, 5), 2000.0, 2.0, false);
    is_about(&call(2000.0, 1.5, 9), 2000.0, 2.0, false);
    let model = call(1000.0, 2.0, 3);
    assert!((model.perturbation.factor(2.0) - 1.5).abs() < 1e-9 && model.is_sane(), "{model:?}");
    assert!(model.accuracy.error < 0.7, "{model:?}");
    // The stored model is used until there is a better one.
    let mut again = Learner::resume(&model);
    assert_eq!(again.model().perturbation, model.perturbation);
    (0..5).for_each(|_| again.learn(Size::Work(2000.0), 10.0, 4.0, false));
    is_about(&again.model(), 2000.0, 4.0, false);
}

#[test]
fn short_calls_take_what_they_take_in_the_mean() {
    // Every eighth waits for its turn.
    let calls: Vec<(f64, f64)> = (0..64).map(|n| (100.0, if n % 8 == 7 { 0.072 } else { 0.004 })).collect();
    let found = learned(&calls).predict(Size::Work(100.0), None).unwrap().seconds;
    assert!((found / 0.0125 - 1.0).abs() < 0.1, "{found}");
    // A single one is ignored, and so are two that something else delayed.
    is_about(&learned(&calls[..8]), 100.0, 0.004, false);
    let held_up: Vec<(f64, f64)> = (0..40).map(|n| (100.0, if n % 20 == 7 { 4.0 } else { 0.005 })).collect();
    is_about(&learned(&held_up), 100.0, 0.005, false);
    let often: Vec<(f64, f64)> = (0..40).map(|n| (100.0, if n % 13 == 7 { 4.0 } else { 0.005 })).collect();
    let found = learned(&often).predict(Size::Work(100.0), None).unwrap().seconds;
    assert!(found < 0.015, "{found}");
}

#[test]
fn calls_that_overlap_in_part_are_learned_from() {
    // 1.5 tasks on average, 1.9 and 1.1: no other loads ever occur.
    let mut learner = Learner::default();
    let spent = |tasks: f64| 2.0 * (1.0 + 0.8 * (tasks - 1.0));
    (0..4).for_each(|_| learner.learn(Size::Work(1e6), 50.0, 1.0, false));
    for _ in 0..60 {
        [1.5, 1.9, 1.1].iter().for_each(|tasks| learner.learn(Size::Work(1e6), spent(*tasks), *tasks, false));
    }
    let model = learner.model();
    for tasks in [1.0, 1.5, 2.0] {
        let found = model.seconds(Size::Work(1e6), None) * model.perturbation.factor(tasks);
        assert!((found / spent(tasks) - 1.0).abs() < 0.1, "{tasks}: {found}, {} {model:?}", spent(tasks));
    }
}

#[test]
fn how_right_a_hostile_server_says_it_was_keeps_no_model_from_use() {
    let accuracy = |bias: f64| Accuracy { count: u64::MAX, outliers: u64::MAX, bias, error: bias.abs() };
    let with = |bias: f64| FunctionModel { accuracy: accuracy(bias), ..learned(&[(100.0, 1.0)]) };
    assert!(!with(1e300).is_sane() && !with(f64::NAN).is_sane());
    let merged = FunctionModel::merge([(&with(1000.0), 1.0), (&with(999.0), 1.0), (&with(1000.0), 1.0)].into_iter());
    assert!(merged.is_sane(), "{merged:?}");
}

#[test]
fn predictions_are_compared_with_what_came() {
    let mut learner = Learner::default();
    (0..20).for_each(|_| learner.learn(Size::Work(100.0), 1.0, 1.0, false));
    let accuracy = learner.model().accuracy;
    assert_eq!((accuracy.count, accuracy.bias, accuracy.error), (19, 0.0, 0.0));
    learner.learn(Size::Work(100.0), std::f64::consts::E, 1.0, false);
    let accuracy = learner.model().accuracy;
    assert!((accuracy.bias - 0.05).abs() < 1e-12 && (accuracy.error - 0.05).abs() < 1e-12, "{accuracy:?}");
}

#[test]
fn nonsense_is_neither_learned_nor_taken() {
    let mut learner = Learner::default();
    for (work, seconds) in
        [(f64::NAN, 1.0), (-1.0, 1.0), (1.0, f64::NAN), (1.0, -1.0), (1.0, 0.0), (f64::INFINITY, 1.0)]
    {
        learner.learn(Size::Work(work), seconds, 1.0, false);
    }
    assert!(learner.model().is_empty());
    let insane = [
        vec![point(2.0, 1.0), point(1.0, 2.0)],
        vec![point(1.0, 2.0), point(2.0, 1.0)],
        vec![point(1.0, f64::NAN)],
        vec![point(f64::INFINITY, 1.0)],
        vec![point(1.0, -1.0)],
        (0..100).map(|n| point(f64::from(n), 1.0)).collect(),
    ];
    for points in insane {
        let curve = Curve { points };
        assert!(!curve.is_sane(), "{curve:?}");
    }
    assert!(Curve { points: vec![point(1.0, 1.0), point(2.0, 1.0)] }.is_sane());
}

#[test]
fn tiny_calls_do_not_say_what_large_ones_take() {
    let tiny = learned(&[(16.0, 9e-6)]);
    let found = tiny.predict(Size::Work(2.5e8), Some(5e9)).unwrap();
    assert!(found.is_extrapolated && found.seconds < 0.06, "{found:?}");
    // Two such sizes do not predict either, nor do bytes.
    let found = learned(&[(16.0, 9e-6), (128.0, 1e-5)]).seconds(Size::Work(2.5e8), Some(5e9));
    assert!(found < 0.06, "{found}");
    let mut learner = Learner::default();
    learner.learn(Size::Bytes(32), 18e-3, 1.0, false);
    assert!(learner.model().seconds(Size::Bytes(1_000_000), None) < 0.3);
    // Two sizes of calls that take long enough do, on a machine that is slow at everything.
    let found = learned(&[(1e6, 1.0), (1e7, 10.0)]).seconds(Size::Work(1e9), Some(5e9));
    assert!((found / 1000.0 - 1.0).abs() < 1e-9, "{found}");
    // The known times of other hosts take precedence.
    let extended = tiny.extended(&learned(&[(1e3, 2e-6), (1e8, 2e-3)]));
    assert!(extended.is_sane() && extended.seconds(Size::Work(1e8), Some(5e9)) == 2e-3, "{extended:?}");
    assert_eq!(extended.by_work.points[1].seconds, 9e-6, "no less than what was measured");
}

/// Any caller of a function can state its work.
#[test]
fn what_is_no_work_is_not_stated() {
    let model = learned(&[(1e6, 1.0), (1e7, 10.0), (1e8, 100.0)]);
    for work in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        assert_eq!(Size::new(Some(work), 8), Size::Bytes(8));
        assert!(model.seconds(Size::new(Some(work), 8), None).is_finite());
    }
    assert_eq!(Size::new(Some(0.0), 8), Size::Work(0.0));
}
