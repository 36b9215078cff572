//! Tests of a single element, step by step.

use std::sync::Arc;

use gridloom_derive::Message;

use gridloom_chare::{
    Callback, Chare, ChareError, Context, Contribution, Element, Elements, Index, Pe, Placement, Priority, Shape, Step,
    Value,
};

#[derive(Clone, Debug, PartialEq, Message)]
#[message(crate = "gridloom_layout")]
enum Note {
    Add { number: i64 },
    Pass { times: u32 },
    Tell,
    Order,
}

/// Stores the numbers that it receives.
struct Keeper {
    numbers: Vec<i64>,
}

impl Chare for Keeper {
    type Message = Note;

    fn entry(&mut self, message: Note, cx: &mut Context<'_, Keeper>) {
        match message {
            Note::Add { number } => self.numbers.push(number),
            Note::Pass { times: 0 } => cx.exit(self.numbers.clone()),
            Note::Pass { times } => cx.send(cx.this(), Note::Pass { times: times - 1 }),
            Note::Tell => cx.contribute(Contribution::gather(self.numbers.clone()), Callback::exit()),
            Note::Order => {
                let value = 1.0 / f64::from(3 + cx.index()[0]);
                cx.contribute(Contribution::sum(value).ordered(), cx.array().at(0));
            }
        }
    }

    fn on_result(&mut self, tag: u32, value: Value, cx: &mut Context<'_, Keeper>) {
        assert_eq!(tag, 0);
        cx.exit(value);
    }
}

fn element() -> Element {
    Element::new(Pe(0), Arc::new(Elements::single_site(1)))
}

fn keepers(element: &mut Element, shape: impl Into<Shape>) -> gridloom_chare::Proxy<Keeper> {
    element.array("keepers", shape.into(), &Placement::Blocks, |_| Keeper { numbers: Vec::new() }).unwrap()
}

fn run(element: &mut Element) -> Result<Value, ChareError> {
    loop {
        match element.step()? {
            Step::Ran(_) => {}
            Step::Idle => panic!("nothing waits and nothing has ended"),
            Step::Ended | Step::Resized => return Ok(element.end().cloned().unwrap()),
        }
    }
}

#[test]
fn messages_run_by_priority_and_then_by_arrival() {
    let mut element = element();
    let keepers = keepers(&mut element, 1);
    element.start(|cx| {
        for (number, priority) in [(1, 0), (2, 3), (3, -1), (4, 0), (5, -1)] {
            cx.send_with(Priority(priority), keepers.at(0), Note::Add { number });
        }
        cx.send_with(Priority(9), keepers.at(0), Note::Pass { times: 0 });
    });
    assert_eq!(run(&mut element), Ok(Value::Integers(vec![3, 5, 1, 4, 2])));
}

#[test]
fn all_and_sections_get_each_message_once_and_gathers_are_in_order() {
    let mut element = element();
    let keepers = keepers(&mut element, (2, 2));
    element.start(|cx| {
        cx.send(keepers.all(), Note::Add { number: 1 });
        cx.send(keepers.section([(1, 1), (0, 1)]), Note::Add { number: 2 });
        cx.send(keepers.section(Vec::<Index>::new()), Note::Add { number: 3 });
        cx.send(keepers.all(), Note::Tell);
    });
    let numbers = |numbers: &[i64]| Value::Integers(numbers.to_vec());
    let gathered = [((0, 0), &[1][..]), ((0, 1), &[1, 2]), ((1, 0), &[1]), ((1, 1), &[1, 2])];
    let gathered = gathered.map(|(index, of)| (Index::from(index), numbers(of)));
    assert_eq!(run(&mut element), Ok(Value::Gathered(gathered.to_vec())));
}

#[test]
fn a_message_to_itself_runs_later_and_takes_no_stack() {
    let mut element = element();
    let keepers = keepers(&mut element, 1);
    element.start(|cx| cx.send(keepers.at(0), Note::Pass { times: 1_000_000 }));
    assert_eq!(run(&mut element), Ok(Value::Integers(Vec::new())));
}

#[test]
fn a_chare_that_there_is_not_ends_the_program() {
    let mut element = element();
    let keepers = keepers(&mut element, (2, 3));
    element.start(|cx| cx.send(keepers.at((0, 3)), Note::Tell));
    let error = run(&mut element).unwrap_err();
    assert_eq!(error.to_string(), "array keepers has no chare (0, 3): it has indices from 0 0 to below [2, 3]");
    assert_eq!(element.step(), Err(error), "it stays so");
}

#[test]
fn quiescence_follows_all_waiting_methods() {
    let mut element = element();
    let keepers = keepers(&mut element, 3);
    element.start(|cx| {
        cx.when_quiet(Callback::exit());
        cx.send(keepers.all(), Note::Add { number: 1 });
        cx.send(keepers.all(), Note::Add { number: 2 });
    });
    let mut ran = 0;
    while matches!(element.step(), Ok(Step::Ran(_))) {
        ran += 1;
    }
    assert_eq!((ran, element.end()), (6, Some(&Value::Nothing)));
}

#[test]
fn a_result_that_no_chare_expects_is_an_error() {
    struct Silent;
    impl Chare for Silent {
        type Message = Note;
        fn entry(&mut self, _: Note, cx: &mut Context<'_, Silent>) {
            cx.contribute(Contribution::barrier(), Callback::to(cx.this()).tagged(4));
        }
    }
    let mut element = element();
    let silent = element.array("silent", 1.into(), &Placement::Blocks, |_| Silent).unwrap();
    element.start(|cx| cx.send(silent.all(), Note::Tell));
    assert_eq!(run(&mut element), Err(ChareError::Unexpected { array: "silent".into(), tag: 4 }));
}

#[test]
fn malformed_batches_are_refused() {
    let mut element = Element::new(Pe(0), Arc::new(Elements::single_site(2)));
    let mut far = Element::new(Pe(1), Arc::new(Elements::single_site(2)));
    let [near, _] = [&mut element, &mut far].map(|element| keepers(element, 4));
    far.start(|_| panic!("only the first element starts"));
    element.start(|cx| cx.send(near.at(3), Note::Pass { times: 1 }));
    let (to, letter) = element.take_batch().unwrap();
    assert_eq!(to, Pe(1));
    for cut in 1..letter.len() {
        far.receive(Pe(0), &letter[..cut]).unwrap_err();
    }
    for (at, byte) in [(0, 9), (1, 7), (9, 1), (13, 255), (30, 255)] {
        let mut wrong = letter.clone();
        wrong[at] = byte;
        let told = far.receive(Pe(0), &wrong).unwrap_err();
        assert!(matches!(told, ChareError::Batch { .. } | ChareError::Message { .. }), "byte {at}: {told}");
    }
    assert_eq!(far.waiting(), 0);
    far.receive(Pe(0), &letter).unwrap();
    assert_eq!(far.waiting(), 1);
}

#[test]
fn an_element_that_fails_sends_the_others_the_reason() {
    let all = Arc::new(Elements::single_site(3));
    let mut elements: Vec<Element> = all.all().map(|me| Element::new(me, all.clone())).collect();
    elements[1].broadcast_failure(&ChareError::Failed("no more".into()));
    for _ in 0..2 {
        let (to, letter) = elements[1].take_batch().unwrap();
        let told = elements[to.0 as usize].receive(Pe(1), &letter).unwrap_err();
        assert_eq!(told, ChareError::RemoteFailure { element: Pe(1), why: "no more".into() });
        // The first reason is forwarded unchanged.
        elements[to.0 as usize].broadcast_failure(&told);
        let (to, letter) = elements[to.0 as usize].take_batch().unwrap();
        assert_eq!(elements[to.0 as usize].receive(Pe(0), &letter), Err(told));
    }
}

#[test]
fn an_ordered_sum_is_that_of_the_serial_loop() {
    let mut element = element();
    let keepers = keepers(&mut element, 100);
    element.start(|cx| cx.send(keepers.all(), Note::Order));
    let serial = (0..100).map(|at| 1.0 / f64::from(3 + at)).reduce(|left, right| left + right).unwrap();
    assert_eq!(run(&mut element).unwrap().float().unwrap().to_bits(), serial.to_bits());
}
