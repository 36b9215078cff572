//! Specs: reading, printing, rejection.

use gridloom_base::limits::SPEC_DEPTH_MAX;
use gridloom_map::*;

#[test]
fn specs_are_printed_back() {
    for text in [
        "heft",
        "heft[insertion=no]",
        "heft[insertion=no,slack=0]",
        "random[seed=3]",
        "exhaustive[nodes=9]",
        "local[from=mct]",
        "anneal[from=local[from=heft[insertion=no,slack=0],steps=5],seed=3]",
    ] {
        assert_eq!(Spec::parse(text).unwrap().to_string(), text);
    }
    for entry in HEURISTICS {
        let spec = Spec::parse(entry.name).unwrap();
        assert_eq!(spec.to_string(), entry.name);
        spec.heuristic().unwrap();
    }
    assert_eq!(Spec::parse(" heft[ slack = 0 , insertion=no ]").unwrap().to_string(), "heft[insertion=no,slack=0]");
    assert_eq!(Spec::parse("mct[]").unwrap().to_string(), "mct");
    for (alias, name) in ALIASES {
        assert_eq!(Spec::parse(alias).unwrap().to_string(), *name);
    }
    assert_eq!(Spec::parse("local[from=greedy_map]").unwrap().to_string(), "local[from=greedy_map]");
    assert!(Spec::parse("local[from=greedy_map]").unwrap().heuristic().is_ok());
}

#[test]
fn what_is_unknown_is_answered_with_what_is_known() {
    let text = |spec| Spec::parse(spec).unwrap_err().to_string();
    assert_eq!(
        text("hefty"),
        "unknown heuristic 'hefty'; known: auto, heft, cpop, peft, lookahead, min-min, max-min, sufferage, local, anneal, greedy, mct, round-robin, random, branch-and-bound, exhaustive"
    );
    assert_eq!(text("heft[seed=1]"), "heuristic 'heft' has no parameter 'seed'; known: insertion, slack, polish");
    assert_eq!(text("mct[seed=1]"), "heuristic 'mct' has no parameter 'seed'; it has none");
    for bad in ["", "[a=b]", "heft[insertion]", "heft[insertion=no", "heft[slack=]", "heft[slack=0,slack=1]"] {
        assert!(matches!(Spec::parse(bad), Err(MapError::BadSpec { .. })), "{bad}");
    }
}

#[test]
fn a_heuristic_within_another_is_read_like_any() {
    let made = |spec: &str| Spec::parse(spec).unwrap().heuristic().map(|_| ());
    assert_eq!(made("local[from=heft[insertion=no],steps=1000]"), Ok(()));
    assert!(matches!(made("local[from=hefty]"), Err(MapError::UnknownHeuristic { .. })));
    assert!(matches!(made("local[from=heft[seed=1]]"), Err(MapError::UnknownParameter { .. })));
    assert!(matches!(made("local[from=heft[slack=2]]"), Err(MapError::BadParameter { .. })));
    for bad in ["local[from=heft[slack=0]", "local[from=heft]]", "local[from=]heft[]"] {
        assert!(matches!(Spec::parse(bad), Err(MapError::BadSpec { .. })), "{bad}");
    }
    let deep = format!("{}heft{}", "local[from=".repeat(SPEC_DEPTH_MAX + 1), "]".repeat(SPEC_DEPTH_MAX + 1));
    assert!(Spec::parse(&deep).unwrap_err().to_string().contains("too deep"));
    let just = format!("{}heft{}", "local[from=".repeat(SPEC_DEPTH_MAX), "]".repeat(SPEC_DEPTH_MAX));
    assert_eq!(made(&just), Ok(()));
}

#[test]
fn bad_values_are_refused() {
    for bad in ["heft[insertion=maybe]", "heft[slack=-1]", "heft[slack=NaN]", "random[seed=x]"] {
        let made = Spec::parse(bad).unwrap().heuristic();
        assert!(matches!(made, Err(MapError::BadParameter { .. })), "{bad}");
    }
}
