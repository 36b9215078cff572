//! Output of calls: the last lines that each call has printed, including calls that have ended, and clients that wait
//! for further lines.
//!
//! **Invariants.** The lines of one call and those of all calls stay below their limits; the oldest lines are evicted.
//! A client has at most one pending query; a later query replaces it.

use std::collections::{BTreeMap, VecDeque};

use crate::node::message::{OutputLine, OutputPage, OutputQuery, short_name};
use gridloom_base::limits::{
    NAME_BYTES_MAX, OUTPUT_BYTES_MAX, OUTPUT_BYTES_PER_CALL, OUTPUT_BYTES_PER_MESSAGE, OUTPUT_LINE_BYTES,
};
use gridloom_base::{NodeId, Origin, Program, TaskId, Time};

/// The printed lines and the pending queries. See the module.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    /// The stored lines, by number.
    lines: BTreeMap<u64, Line>,
    /// Calls with stored lines.
    calls: BTreeMap<TaskId, Call>,
    bytes: usize,
    /// The number of the last printed line.
    last: u64,
    /// The greatest number of an evicted line.
    last_evicted: u64,
    pending_queries: BTreeMap<NodeId, (OutputQuery, Reader)>,
}

/// The lines that a client may read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reader {
    /// Lines of the programs of this user.
    User(String),
    All,
}

impl Reader {
    pub(super) fn of(origin: &Origin) -> Reader {
        match origin.may_change_all() {
            true => Reader::All,
            false => Reader::User(origin.user.clone()),
        }
    }

    fn may_read(&self, call: &Call) -> bool {
        match self {
            Reader::User(user) => call.program.as_ref().is_some_and(|program| program.user == *user),
            Reader::All => true,
        }
    }
}

#[derive(Debug)]
struct Line {
    at: Time,
    call: TaskId,
    is_error: bool,
    /// The next line of the same stream replaces this one, as in a progress bar.
    is_redrawn: bool,
    text: String,
}

#[derive(Debug)]
struct Call {
    function: String,
    program: Option<Program>,
    /// The numbers of its lines, in order.
    numbers: VecDeque<u64>,
    bytes: usize,
}

impl Line {
    fn bytes(&self) -> usize {
        self.text.len() + OUTPUT_LINE_BYTES
    }
}

impl Outputs {
    /// Stores text that a call of this function printed. All lines of the text are complete, except possibly the last one.
    pub(super) fn print(
        &mut self,
        at: Time,
        call: TaskId,
        (function, program): (&str, Option<&Program>),
        is_error: bool,
        text: &str,
    ) {
        for line in text.replace("\r\n", "\n").split_inclusive(['\n', '\r']) {
            let is_redrawn = line.ends_with('\r');
            let text = line.trim_end_matches(['\n', '\r']);
            if !(is_redrawn && text.is_empty()) {
                self.push((function, program), Line { at, call, is_error, is_redrawn, text: text.to_string() });
            }
        }
    }

    fn push(&mut self, (function, program): (&str, Option<&Program>), line: Line) {
        let call = line.call;
        let new =
            || Call { function: function.to_string(), program: program.cloned(), numbers: VecDeque::new(), bytes: 0 };
        let numbers = &self.calls.entry(call).or_insert_with(new).numbers;
        let former = numbers.back().and_then(|number| Some((*number, self.lines.get(number)?)));
        if let Some((number, former)) = former
            && former.is_redrawn
            && former.is_error == line.is_error
        {
            self.remove(number);
        }
        self.last += 1;
        let (number, bytes) = (self.last, line.bytes());
        self.bytes += bytes;
        let of_call = self.calls.entry(call).or_insert_with(new);
        of_call.bytes += bytes;
        of_call.numbers.push_back(number);
        self.lines.insert(number, line);
        while let Some(oldest) = self.next_to_evict(call) {
            self.last_evicted = self.last_evicted.max(oldest);
            self.remove(oldest);
        }
    }

    /// Returns the next line to evict if a limit is exceeded. A single line exceeds no limit.
    fn next_to_evict(&self, call: TaskId) -> Option<u64> {
        let own = self.calls.get(&call)?;
        if own.bytes > OUTPUT_BYTES_PER_CALL && own.numbers.len() > 1 {
            return own.numbers.front().copied();
        }
        let is_full = self.bytes > OUTPUT_BYTES_MAX && self.lines.len() > 1;
        if is_full { self.lines.keys().next().copied() } else { None }
    }

    /// Removes the first or the last line of a call.
    fn remove(&mut self, number: u64) {
        let line = self.lines.remove(&number).expect("calls list only stored lines");
        self.bytes -= line.bytes();
        let call = self.calls.get_mut(&line.call).expect("each line is listed by its call");
        call.bytes -= line.bytes();
        if call.numbers.front() == Some(&number) {
            call.numbers.pop_front();
        } else {
            call.numbers.pop_back();
        }
        if call.numbers.is_empty() {
            self.calls.remove(&line.call);
        }
    }

    /// Answers a client's query, or keeps it until there is a line. Returns `Err` for a query that no correct client sends.
    pub(super) fn query(
        &mut self,
        client: NodeId,
        reader: Reader,
        query: OutputQuery,
    ) -> Result<Option<OutputPage>, ()> {
        if query.function.as_ref().is_some_and(|function| function.len() > NAME_BYTES_MAX) {
            return Err(());
        }
        let output = self.output(&query, &reader);
        if query.wait && output.lines.is_empty() {
            self.pending_queries.insert(client, (OutputQuery { after: output.after, ..query }, reader));
            return Ok(None);
        }
        self.pending_queries.remove(&client);
        Ok(Some(output))
    }

    /// Returns the answers to clients that waited for the new lines.
    pub(super) fn take_answers(&mut self) -> Vec<(NodeId, OutputPage)> {
        let waiting = std::mem::take(&mut self.pending_queries);
        let mut answers = Vec::new();
        for (client, (query, reader)) in waiting {
            if let Ok(Some(output)) = self.query(client, reader, query) {
                answers.push((client, output));
            }
        }
        answers
    }

    pub(super) fn forget_peer(&mut self, peer: NodeId) {
        self.pending_queries.remove(&peer);
    }

    fn output(&self, query: &OutputQuery, reader: &Reader) -> OutputPage {
        let is_asked = |line: &Line| {
            let call = &self.calls[&line.call];
            query.call.is_none_or(|call| line.call == call)
                && query.function.as_ref().is_none_or(|name| is_named(&call.function, name))
                && reader.may_read(call)
        };
        let later = self.lines.range(query.after.saturating_add(1)..).rev().filter(|(_, line)| is_asked(line));
        let mut asked: Vec<(&u64, &Line)> = later.take(usize::try_from(query.last).unwrap_or(usize::MAX)).collect();
        asked.reverse();
        let mut output =
            OutputPage { has_gap: 0 < query.after && query.after < self.last_evicted, ..OutputPage::default() };
        let (mut bytes, mut programs) = (0, BTreeMap::new());
        for (number, line) in asked {
            bytes += line.bytes();
            if bytes > OUTPUT_BYTES_PER_MESSAGE && !output.lines.is_empty() {
                output.has_more = true;
                break;
            }
            let Line { at, call, is_error, ref text, .. } = *line;
            let Call { function, program, .. } = &self.calls[&call];
            let (function, text) = (function.clone(), text.clone());
            if let Some(program) = program {
                programs.insert(program.client, program);
            }
            let program = program.as_ref().map_or(call.client, |program| program.client);
            output.lines.push(OutputLine { number: *number, call, function, program, is_error, at, text });
        }
        output.programs = programs.into_values().cloned().collect();
        let told = output.lines.last().map_or(query.after, |line| line.number);
        output.after = if output.has_more { told } else { self.last };
        output
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let numbers: usize = self.calls.values().map(|call| call.numbers.len()).sum();
        let bytes: usize = self.lines.values().map(Line::bytes).sum();
        let of_calls: usize = self.calls.values().map(|call| call.bytes).sum();
        if numbers != self.lines.len() || bytes != self.bytes || of_calls != bytes {
            return Err(format!(
                "{} lines of {bytes} bytes are stored, but calls list {numbers} lines of {of_calls} bytes",
                self.lines.len()
            ));
        }
        Ok(())
    }
}

fn is_named(function: &str, name: &str) -> bool {
    function == name || short_name(function) == name
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: NodeId = NodeId(7);

    fn call(serial: u64) -> TaskId {
        TaskId { client: NodeId(3), serial }
    }

    fn all() -> OutputQuery {
        OutputQuery { last: u64::MAX, ..OutputQuery::default() }
    }

    fn texts(output: &OutputPage) -> Vec<&str> {
        output.lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[track_caller]
    fn query(outputs: &mut Outputs, query: OutputQuery) -> OutputPage {
        assert_eq!(outputs.check(), Ok(()));
        outputs.query(CLIENT, Reader::All, query).unwrap().expect("it does not wait")
    }

    #[test]
    fn lines_are_returned_with_their_origin_by_function_and_call() {
        let mut outputs = Outputs::default();
        outputs.print(Time(1), call(1), ("m/f", None), false, "one\n\ntwo\r\nbegun");
        let program = gridloom_base::Origin::default().program(NodeId(9), "train.py");
        outputs.print(Time(4), call(2), ("n/g", Some(&program)), true, "odd\n");
        let output = query(&mut outputs, all());
        let programs: Vec<Option<&Program>> = output.lines.iter().map(|line| output.program_of(line)).collect();
        assert_eq!(programs, [None, None, None, None, Some(&program)]);
        assert_eq!((texts(&output), output.after, output.has_more), (vec!["one", "", "two", "begun", "odd"], 5, false));
        let last = output.lines.last().unwrap();
        assert_eq!((last.call, last.function.as_str(), last.is_error, last.at), (call(2), "n/g", true, Time(4)));
        for (name, count) in [("g", 1), ("n/g", 1), ("m/f", 4), ("n", 0)] {
            let output = query(&mut outputs, OutputQuery { function: Some(name.into()), ..all() });
            assert_eq!((output.lines.len(), output.after), (count, 5), "{name}");
        }
        assert_eq!(texts(&query(&mut outputs, OutputQuery { call: Some(call(2)), ..all() })), ["odd"]);
        assert_eq!(texts(&query(&mut outputs, OutputQuery { last: 2, ..all() })), ["begun", "odd"]);
        let none = query(&mut outputs, OutputQuery { last: 0, ..all() });
        assert_eq!((texts(&none), none.after), (vec![], 5));
        assert!(outputs.query(CLIENT, Reader::All, OutputQuery { function: Some("x".repeat(256)), ..all() }).is_err());
    }

    #[test]
    fn a_function_is_named_with_or_without_its_module() {
        for (function, short) in
            [("m/f", "f"), ("main:f", "f"), ("a.b:C.f", "C.f"), ("main:f.<locals>.g", "g"), ("f", "f")]
        {
            assert!(is_named(function, short) && is_named(function, function), "{function}");
            assert!(!is_named(function, "m") && !is_named(function, "main"), "{function}");
        }
    }

    #[test]
    fn a_line_that_is_redrawn_is_kept_once() {
        let mut outputs = Outputs::default();
        for text in ["\r", " 10 %\r", " 20 %\r", "100 %\n", "done\n"] {
            outputs.print(Time(1), call(1), ("m/f", None), true, text);
        }
        outputs.print(Time(1), call(1), ("m/f", None), true, "half\r");
        outputs.print(Time(1), call(1), ("m/f", None), false, "of the other stream\n");
        assert_eq!(texts(&query(&mut outputs, all())), ["100 %", "done", "half", "of the other stream"]);
    }

    #[test]
    fn the_last_lines_of_each_call_stay_within_bounds() {
        let mut outputs = Outputs::default();
        outputs.print(Time(0), call(0), ("m/f", None), false, "first\n");
        let line = "x".repeat(1000) + "\n";
        (0..1000).for_each(|_| outputs.print(Time(1), call(1), ("m/f", None), false, &line));
        let output = query(&mut outputs, all());
        assert_eq!((output.lines[0].text.as_str(), output.lines.len()), ("first", 1 + OUTPUT_BYTES_PER_CALL / 1064));
        assert!(!output.has_gap && query(&mut outputs, OutputQuery { after: 5, ..all() }).has_gap);
        (2..1000)
            .for_each(|serial| (0..10).for_each(|_| outputs.print(Time(2), call(serial), ("m/f", None), false, &line)));
        assert!(outputs.bytes <= OUTPUT_BYTES_MAX && outputs.bytes > OUTPUT_BYTES_MAX - 1100);
        outputs.print(Time(3), call(5000), ("m/f", None), false, &"y".repeat(2 * OUTPUT_BYTES_PER_CALL));
        assert_eq!(query(&mut outputs, OutputQuery { call: Some(call(5000)), ..all() }).lines.len(), 1);
    }

    #[test]
    fn a_long_answer_is_split() {
        let mut outputs = Outputs::default();
        let line = "x".repeat(1000) + "\n";
        (0..4000).for_each(|serial| outputs.print(Time(1), call(serial), ("m/f", None), false, &line));
        let (mut next, mut numbers, mut parts) = (OutputQuery { last: 3000, ..all() }, Vec::new(), 0);
        loop {
            let output = query(&mut outputs, next.clone());
            numbers.extend(output.lines.iter().map(|line| line.number));
            parts += 1;
            next.after = output.after;
            if !output.has_more {
                break;
            }
        }
        assert_eq!((numbers, parts), ((1001..=4000).collect::<Vec<u64>>(), 4));
    }

    #[test]
    fn a_client_waits_for_the_next_line_that_it_asks_for() {
        let mut outputs = Outputs::default();
        let query = OutputQuery { function: Some("g".into()), wait: true, ..all() };
        assert_eq!(outputs.query(CLIENT, Reader::All, query.clone()), Ok(None));
        outputs.print(Time(2), call(1), ("m/f", None), false, "of another\n");
        assert_eq!(outputs.take_answers(), []);
        outputs.print(Time(3), call(2), ("m/g", None), false, "awaited\n");
        let answers = outputs.take_answers();
        assert_eq!((answers[0].0, texts(&answers[0].1), answers[0].1.after), (CLIENT, vec!["awaited"], 2));
        assert_eq!(outputs.take_answers(), []);
        let output = outputs.query(CLIENT, Reader::All, query.clone()).unwrap().unwrap();
        assert_eq!(texts(&output), ["awaited"]);
        assert_eq!(outputs.query(CLIENT, Reader::All, OutputQuery { after: output.after, ..query }), Ok(None));
        outputs.forget_peer(CLIENT);
        outputs.print(Time(5), call(2), ("m/g", None), false, "too late\n");
        assert_eq!(outputs.take_answers(), []);
    }

    #[test]
    fn a_user_reads_the_lines_of_their_own_programs() {
        let mut outputs = Outputs::default();
        let user = |name: &str| Origin { user: name.into(), ..Origin::default() };
        let (anna, bert) = (user("anna").program(NodeId(3), "train.py"), user("bert").program(NodeId(4), "sweep"));
        outputs.print(Time(1), call(1), ("m/f", Some(&anna)), false, "of anna\n");
        outputs.print(Time(2), call(2), ("m/f", Some(&bert)), false, "of bert\n");
        outputs.print(Time(3), call(3), ("m/f", None), false, "of a program that is gone\n");
        let mut read = |origin: Origin| outputs.query(CLIENT, Reader::of(&origin), all()).unwrap().unwrap();
        assert_eq!(texts(&read(user("anna"))), ["of anna"]);
        assert_eq!(read(user("anna")).after, 3, "what others printed later is not asked for again");
        assert_eq!(read(Origin { is_administrator: true, ..user("carol") }).lines.len(), 3);
        let waits = OutputQuery { after: 3, wait: true, ..all() };
        assert_eq!(outputs.query(CLIENT, Reader::of(&user("anna")), waits), Ok(None));
        outputs.print(Time(4), call(2), ("m/f", Some(&bert)), false, "of bert, later\n");
        assert_eq!(outputs.take_answers(), []);
        outputs.print(Time(5), call(1), ("m/f", Some(&anna)), false, "of anna, later\n");
        assert_eq!(texts(&outputs.take_answers()[0].1), ["of anna, later"]);
    }
}
