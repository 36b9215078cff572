//! Differences between two declarations of one message type, in words for the programmers of both.

use super::schema::Schema;
use super::text::{declarator, field_text};
use super::types::Declaration;

/// Maximum number of differences listed: nobody reads more.
const DIFFERENCES_MAX: usize = 8;

/// Returns the differences between `theirs` and `ours`, declaration by declaration, field by field; empty if they are equal.
pub fn differences(theirs: &Schema, ours: &Schema) -> Vec<String> {
    let mut found = Vec::new();
    for own in ours.declarations() {
        let other = theirs.declarations().iter().find(|other| other.name() == own.name());
        match other {
            Some(other) => compare(other, own, theirs.declarations(), ours.declarations(), &mut found),
            None => found.push(format!("'{}' is declared by the receiver only", own.name())),
        }
    }
    for other in theirs.declarations() {
        if !ours.declarations().iter().any(|own| own.name() == other.name()) {
            found.push(format!("'{}' is declared by the sender only", other.name()));
        }
    }
    if found.len() > DIFFERENCES_MAX {
        let more = found.len() - DIFFERENCES_MAX;
        found.truncate(DIFFERENCES_MAX);
        found.push(format!("and {more} more"));
    }
    found
}

fn compare(
    theirs: &Declaration,
    ours: &Declaration,
    their_all: &[Declaration],
    our_all: &[Declaration],
    found: &mut Vec<String>,
) {
    let name = ours.name();
    if let (Declaration::Struct(theirs), Declaration::Struct(ours)) = (theirs, ours)
        && theirs.packed != ours.packed
    {
        let who = if theirs.packed { "sender" } else { "receiver" };
        found.push(format!("'{name}' is packed by the {who} only"));
    }
    let (theirs, ours) = (members(theirs, their_all), members(ours, our_all));
    let before = found.len();
    for (member, text) in &ours {
        match theirs.iter().find(|(other, _)| other == member) {
            Some((_, other)) if other == text => {}
            Some((_, other)) => {
                found.push(format!("'{name}.{member}' is '{other}' for the sender and '{text}' for the receiver"));
            }
            None => found.push(format!("'{name}.{member}' exists for the receiver only")),
        }
    }
    for (member, _) in &theirs {
        if !ours.iter().any(|(own, _)| own == member) {
            found.push(format!("'{name}.{member}' exists for the sender only"));
        }
    }
    let moved = theirs.iter().zip(&ours).find(|((theirs, _), (ours, _))| theirs != ours);
    if let (true, Some(((theirs, _), (ours, _)))) = (found.len() == before, moved) {
        found.push(format!("in '{name}' the sender has '{theirs}' where the receiver has '{ours}'"));
    }
}

/// Names and texts of fields, cases or constants.
fn members(declaration: &Declaration, all: &[Declaration]) -> Vec<(String, String)> {
    match declaration {
        Declaration::Struct(declared) => {
            declared.fields.iter().map(|field| (field.name.clone(), field_text(field, &declared.fields, all))).collect()
        }
        Declaration::Union(declared) => declared
            .cases
            .iter()
            .map(|case| {
                let text = format!("{} GRIDLOOM_CASE({})", declarator(&case.ty, &case.name, all), case.tag);
                (case.name.clone(), text)
            })
            .collect(),
        Declaration::Enum(declared) => {
            declared.constants.iter().map(|(name, value)| (name.clone(), format!("{name} = {value}"))).collect()
        }
    }
}
