//! Orders of messages that the program must handle.

use std::collections::VecDeque;
use std::sync::Arc;

use gridloom_chare::{Element, Elements, Packing, Step};

use super::*;

fn element(me: Pe, elements: &Arc<Elements>, options: &Rc<Options>) -> Element {
    let mut element = Element::new(me, elements.clone());
    let (new, again) = (options.clone(), options.clone());
    let packing = Packing::of_state(move |at, moving| Block::new(again.clone(), at, Some(moving)));
    let block = |at| Block::new(new.clone(), at, None);
    let mesh = element.migratable_array("mesh", options.blocks.into(), &options.placement, block, packing).unwrap();
    element.start(|cx| cx.send(mesh.all(), BlockMessage::Begin));
    element
}

/// The first element reports when all have begun, and when all are saved. Its batches to the last one arrive after everything
/// else, so the edges of the block between arrive before that report.
#[test]
fn an_edge_may_arrive_before_its_block_knows_that_all_have_begun() {
    let options = Options { size: 12, blocks: (1, 3), steps: 7, checkpoint_every: 2, ..Options::defaults() };
    let (options, elements) = (Rc::new(options), Arc::new(Elements::single_site(3)));
    let mut all: Vec<Element> = elements.all().map(|me| element(me, &elements, &options)).collect();
    let mut late = VecDeque::new();
    while all.iter().any(|element| element.end().is_none()) {
        let mut is_idle = true;
        for from in elements.all() {
            while let Step::Ran(_) = all[from.0 as usize].step().unwrap() {
                is_idle = false;
            }
            while let Some((to, letter)) = all[from.0 as usize].take_batch() {
                is_idle = false;
                match (from, to) {
                    (Pe(0), Pe(2)) => late.push_back(letter),
                    _ => all[to.0 as usize].receive(from, &letter).unwrap(),
                }
            }
        }
        if is_idle {
            all[2].receive(Pe(0), &late.pop_front().expect("the program goes on")).unwrap();
        }
    }
    let Some(Value::Integers(told)) = all[0].end() else { panic!("{:?}", all[0].end()) };
    assert_eq!(told[0], serial(12, 7).0);
}
