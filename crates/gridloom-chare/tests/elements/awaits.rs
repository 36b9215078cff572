//! Tests of chares that wait for messages, replies, reductions and channels.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use gridloom_derive::Message;

use super::network::Network;
use gridloom_chare::{
    AsyncContext, Callback, Channel, Chare, ChareError, Context, Contribution, Element, Elements, Migrate, Packing, Pe,
    Placement, Priority, Proxy, ReplyTo, Shape, Step, Value,
};

const CELLS: u32 = 7;
const STEPS: u32 = 12;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(crate = "gridloom_layout")]
enum Edge {
    Left { step: u32, value: f64 },
    Right { step: u32, value: f64 },
}

/// Sends its value to both neighbours and takes the mean, for some steps.
struct Cell {
    value: f64,
    oracle: Proxy<Oracle>,
    steps: u32,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(crate = "gridloom_layout")]
struct Ask {
    number: i64,
    to: ReplyTo,
}

/// An ordinary chare that answers immediately.
struct Oracle;

impl Chare for Oracle {
    type Message = Ask;

    fn entry(&mut self, ask: Ask, cx: &mut Context<'_, Oracle>) {
        cx.call_back(ask.to, 3 * ask.number);
    }
}

fn neighbour(cx: &AsyncContext<Cell>, by: i32) -> i32 {
    (cx.index()[0] + by).rem_euclid(CELLS as i32)
}

impl Chare for Cell {
    type Message = Edge;

    fn entry(&mut self, edge: Edge, cx: &mut Context<'_, Cell>) {
        cx.keep(edge);
    }
}

impl Cell {
    async fn run(cx: AsyncContext<Cell>) {
        let (oracle, steps) = cx.with(|cell| (cell.oracle, cell.steps));
        let (left, right) = (neighbour(&cx, -1), neighbour(&cx, 1));
        // The right neighbour's first channel to this cell. If left and right are the same chare, the left one's is its second.
        let channel = (cx.channel(cx.array().at(right)), cx.channel(cx.array().at(left)));
        for step in 0..steps {
            let value = cx.with(|cell| cell.value);
            cx.send(cx.array().at(left), Edge::Right { step, value });
            cx.send_with(Priority(step as i32 % 3), cx.array().at(right), Edge::Left { step, value });
            // Awaited in the opposite order of sending.
            let is_left = move |edge: &Edge| matches!(edge, Edge::Left { step: of, .. } if *of == step);
            let is_right = move |edge: &Edge| matches!(edge, Edge::Right { step: of, .. } if *of == step);
            let (Edge::Left { value: from_left, .. }, Edge::Right { value: from_right, .. }) =
                both(cx.receive_if(is_left), cx.receive_if(is_right)).await
            else {
                unreachable!("only those fit")
            };
            cx.with(|cell| cell.value = (value + from_left + from_right) / 3.0);
            channel.0.send(i64::from(step));
        }
        for step in 0..steps {
            assert_eq!(channel.1.receive().await, Value::Integers(vec![i64::from(step)]), "in their order");
        }
        let (first, second) = (cx.reply(), cx.reply());
        for (number, reply) in [(5, &second), (4, &first)] {
            cx.send(oracle.at(0), Ask { number, to: reply.to() });
        }
        let answers = [first.await, second.await].map(|value| value.integer().unwrap());
        assert_eq!(answers, [12, 15]);
        // Nothing waits for the first result.
        drop(cx.all_reduce(Contribution::sum(1.0)));
        let count = cx.all_reduce(Contribution::sum(1.0)).await;
        assert_eq!(count.float(), Some(f64::from(CELLS)));
        let sum = cx.all_reduce(Contribution::sum(cx.with(|cell| cell.value)).ordered()).await;
        if cx.index()[0] == 0 {
            cx.quiescence().await;
            cx.exit(sum);
        }
    }
}

/// Awaits both futures, in whichever order they complete.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(|cx| {
        if of_a.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            of_a = Some(value);
        }
        if of_b.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            of_b = Some(value);
        }
        if of_a.is_none() || of_b.is_none() {
            return Poll::Pending;
        }
        Poll::Ready((of_a.take().expect("it came"), of_b.take().expect("it came")))
    })
    .await
}

fn make(element: &mut Element) {
    let oracle = element.array("oracle", Shape::from(1), &Placement::Blocks, |_| Oracle).unwrap();
    let cell = |index: gridloom_chare::Index| Cell { value: f64::from(index[0]), oracle, steps: STEPS };
    let cells = element.array("cells", Shape::from(CELLS as usize), &Placement::RoundRobin, cell).unwrap();
    element.spawn(cells, Cell::run);
}

/// Computes the same result in a loop.
fn expected() -> f64 {
    let mut values: Vec<f64> = (0..CELLS).map(f64::from).collect();
    for _ in 0..STEPS {
        let count = values.len();
        let mean = |at: usize| (values[at] + values[(at + count - 1) % count] + values[(at + 1) % count]) / 3.0;
        values = (0..count).map(mean).collect();
    }
    values.iter().sum()
}

#[test]
fn messages_are_received_by_step_and_channels_in_order_whatever_overtakes_them() {
    for (seed, elements) in (0..200).map(|seed| (seed, 1 + seed as u32 % 4)) {
        let mut network = Network::new(&Arc::new(Elements::single_site(elements)), seed, make);
        let sum = network.run().unwrap().float().unwrap();
        assert!((sum - expected()).abs() < 1e-12, "seed {seed}: {sum} in place of {}", expected());
    }
}

fn alone(make: impl FnOnce(&mut Element)) -> Result<Value, ChareError> {
    let mut element = Element::new(Pe(0), Arc::new(Elements::single_site(1)));
    make(&mut element);
    loop {
        match element.step()? {
            Step::Ran(_) => {}
            Step::Idle => return Err(element.stalled()),
            Step::Ended | Step::Resized => return Ok(element.end().cloned().unwrap()),
        }
    }
}

#[derive(Clone, Debug, Message)]
#[message(crate = "gridloom_layout")]
struct Number {
    number: i64,
}

/// Waits for a message that never arrives, waits for a channel, or answers a reply twice.
#[derive(Clone, Copy)]
enum Wrong {
    ForMessage,
    ForChannel,
    Twice,
    ForOther,
    /// Keeps a message without waiting for it.
    Keeps,
    Nests,
    /// Its closure accesses more than the message.
    Peeks,
}

impl Chare for Wrong {
    type Message = Number;

    fn entry(&mut self, number: Number, cx: &mut Context<'_, Wrong>) {
        cx.keep(number);
    }
}

impl Wrong {
    async fn run(self, cx: AsyncContext<Wrong>) {
        cx.send(cx.this(), Number { number: 1 });
        match self {
            Wrong::ForMessage => _ = cx.receive_if(|message| message.number == 2).await,
            Wrong::ForChannel => _ = cx.channel::<Wrong>(cx.array().at(1)).receive().await,
            Wrong::Twice => {
                let reply = cx.reply();
                cx.call_back(reply.to(), 1);
                cx.call_back(reply.to(), 2);
                reply.await;
                cx.receive_if(|message| message.number == 2).await;
            }
            Wrong::ForOther => std::future::pending().await,
            Wrong::Keeps => {}
            Wrong::Nests => cx.with(|_| cx.with(|_| {})),
            Wrong::Peeks => {
                let looks = cx.clone();
                cx.receive_if(move |_| looks.with(|_| true)).await;
            }
        }
    }
}

fn wrongs(element: &mut Element, count: usize, of: Wrong) {
    let wrongs = element.array("wrongs", Shape::from(count), &Placement::Blocks, |_| of).unwrap();
    element.spawn(wrongs, move |cx| of.run(cx));
}

#[test]
fn a_deadlock_reports_the_cycle() {
    let told = |count, of| alone(|element| wrongs(element, count, of)).unwrap_err().to_string();
    let message = told(1, Wrong::ForMessage);
    assert!(message.ends_with("wrongs(0) waits for a message (1 kept, none matches)."), "{message}");
    let channel = told(10, Wrong::ForChannel);
    assert!(channel.contains("wrongs(7) waits for the channel to (1); and 2 more."), "{channel}");
    let other = told(1, Wrong::ForOther);
    assert!(other.ends_with("wrongs(0) waits for something that its context does not provide."), "{other}");
    let keeps = told(1, Wrong::Keeps);
    assert!(keeps.ends_with("wrongs(0) waits for a method that receives its kept messages (1)."), "{keeps}");
}

#[test]
fn a_second_value_for_a_reply_is_an_error() {
    let told = alone(|element| wrongs(element, 1, Wrong::Twice)).unwrap_err();
    assert_eq!(told, ChareError::Failed("chare (0) of array wrongs got a second value for a reply".into()));
}

#[test]
#[should_panic(expected = "a closure of AsyncContext::with must not call AsyncContext::with")]
fn the_chare_is_lent_to_one_closure_at_a_time() {
    let _ = alone(|element| wrongs(element, 1, Wrong::Nests));
}

#[test]
#[should_panic(expected = "a closure of receive_if may use only the message: copy what it needs from the chare \
beforehand")]
fn whether_a_message_fits_depends_on_the_message() {
    let _ = alone(|element| wrongs(element, 1, Wrong::Peeks));
}

/// Its methods act before their futures are first polled.
struct Sync(i64);

impl Chare for Sync {
    type Message = Number;

    fn entry(&mut self, number: Number, _: &mut Context<'_, Sync>) {
        unreachable!("{}", number.number);
    }
}

impl Sync {
    fn reduce(cx: AsyncContext<Sync>) -> impl Future<Output = ()> {
        let sum = cx.all_reduce(Contribution::sum(cx.with(|sync| sync.0)));
        async move {
            let sum = sum.await.integer().unwrap();
            match cx.with(|sync| std::mem::replace(&mut sync.0, sum)) {
                1 => cx.spawn(Sync::reduce),
                _ => cx.exit(sum),
            }
        }
    }
}

#[test]
fn a_method_may_do_what_it_likes_before_its_future_begins() {
    let ended = alone(|element| {
        let array = element.array("sync", Shape::from(3), &Placement::Blocks, |_| Sync(1)).unwrap();
        element.spawn(array, Sync::reduce);
    });
    assert_eq!(ended.unwrap().integer(), Some(9));
}

/// Stores its end of a channel, and sends on it from an entry method.
struct ChannelSender(Option<Channel<ChannelSender>>);

impl Migrate for ChannelSender {
    type State = ();

    fn pack(&self) {}
}

impl Chare for ChannelSender {
    type Message = Order;

    fn entry(&mut self, order: Order, cx: &mut Context<'_, ChannelSender>) {
        let Order::Move { to } = order else { unreachable!("{order:?} is sent to no teller") };
        self.0.as_ref().unwrap().send(7);
        cx.migrate_to(Pe(to));
    }
}

impl ChannelSender {
    async fn run(cx: AsyncContext<ChannelSender>, to: u32) {
        let own = cx.index()[0];
        let channel = cx.channel(cx.array().at(1 - own));
        if own == 0 {
            cx.with(|teller| teller.0 = Some(channel));
            cx.send(cx.this(), Order::Move { to });
        } else {
            let came = channel.receive().await;
            cx.exit(came);
        }
    }
}

#[test]
fn what_an_entry_method_asks_by_a_stored_channel_happens_before_its_chare_moves() {
    for to in [0, 1] {
        let make = |element: &mut Element| {
            let packing = Packing::of_state(|_, ()| ChannelSender(None));
            let tellers = element
                .migratable_array("tellers", 2.into(), &Placement::RoundRobin, |_| ChannelSender(None), packing)
                .unwrap();
            element.spawn(tellers, move |cx| ChannelSender::run(cx, to));
        };
        let mut network = Network::new(&Arc::new(Elements::single_site(2)), u64::from(to), make);
        assert_eq!(network.run().unwrap().integer(), Some(7), "to {to}");
    }
}

#[test]
#[should_panic(expected = "the tag of a result is below 2147483648, not 2147483648")]
fn tags_of_replies_are_not_the_program_s() {
    let _ = Callback::exit().tagged(1 << 31);
}

#[derive(Clone, Debug, Message)]
#[message(crate = "gridloom_layout")]
enum Order {
    Wait,
    Move { to: u32 },
    Save,
    Number { number: i64 },
}

/// Has a method that waits for a number while the chare must move or be saved.
struct Pinned;

impl Migrate for Pinned {
    type State = ();

    fn pack(&self) {}
}

impl Chare for Pinned {
    type Message = Order;

    fn entry(&mut self, order: Order, cx: &mut Context<'_, Pinned>) {
        match order {
            Order::Wait => cx.spawn(async move |cx: AsyncContext<Pinned>| _ = cx.receive().await),
            Order::Move { to } => cx.migrate_to(Pe(to)),
            Order::Save => cx.checkpoint(Callback::to(cx.this())),
            number @ Order::Number { .. } => cx.keep(number),
        }
    }
}

fn held(elements: u32, orders: &[Order]) -> Element {
    let mut element = Element::new(Pe(0), Arc::new(Elements::single_site(elements)));
    let packing = Packing::of_state(|_, ()| Pinned);
    let held = element.migratable_array("held", 1.into(), &Placement::RoundRobin, |_| Pinned, packing).unwrap();
    element.keep_checkpoints(1, 0);
    element.start(|cx| orders.iter().for_each(|order| cx.send(held.at(0), order.clone())));
    element
}

/// Runs the element until no message waits.
fn run(element: &mut Element) -> Result<(), ChareError> {
    while element.step()? != Step::Idle {}
    Ok(())
}

#[test]
fn a_chare_that_waits_does_not_move() {
    let told = run(&mut held(2, &[Order::Wait, Order::Move { to: 1 }])).unwrap_err().to_string();
    let why = "one of its methods waits for a message; end such methods first";
    assert_eq!(told, format!("chare (0) of array held cannot move: {why}"));
    // A kept message lets the method finish first.
    let mut element = held(2, &[Order::Number { number: 3 }, Order::Wait, Order::Move { to: 1 }]);
    run(&mut element).unwrap();
    assert_eq!(element.take_batch().map(|(to, _)| to), Some(Pe(1)));
}

#[test]
fn a_chare_that_waits_cannot_be_saved() {
    let mut element = held(1, &[Order::Wait, Order::Save]);
    run(&mut element).unwrap();
    let told = element.take_part().unwrap_err().to_string();
    let why = "one of its methods waits for a message; end such methods first";
    assert_eq!(told, format!("chare (0) of array held cannot be saved: {why}"));
    let mut element = held(1, &[Order::Wait, Order::Number { number: 3 }, Order::Save]);
    run(&mut element).unwrap();
    assert!(element.take_part().unwrap().is_some());
}
