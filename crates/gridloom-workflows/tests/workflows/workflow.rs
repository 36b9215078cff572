//! Files of recorded workflows.

use gridloom_workflows::*;

fn refused(tasks: &str, files: &str) -> String {
    Workflow::parse(&format!("{{\"tasks\": [{tasks}], \"files\": {{{files}}}}}"), "w.json").unwrap_err().to_string()
}

#[test]
fn errors_are_named() {
    let one = r#"{"id": "a", "work_seconds": 1, "inputs": ["f"], "outputs": ["g"]}"#;
    let other = r#"{"id": "b", "work_seconds": 1, "inputs": ["g"], "outputs": ["f"]}"#;
    let sizes = r#""f": 1, "g": 2"#;
    assert!(refused(&format!("{one},{other}"), sizes).contains("in a cycle, which includes 'a'"));
    assert!(refused(&format!("{one},{one}"), sizes).contains("two tasks have the name 'a'"));
    assert!(refused(&format!("{one},{}", one.replace("\"a\"", "\"c\"")), sizes).contains("by 'a' and 'c'"));
    assert!(refused(one, r#""f": 1"#).contains("task 'a' names file 'g', which is not in 'files'"));
    assert!(refused(one, r#""f": -1, "g": 2"#).contains("file 'f' has -1 bytes"));
    assert!(
        refused(one, r#""f": 1, "g": 2.5"#).contains("file 'g' has 2.5 bytes; it must be a whole number, such as 3")
    );
    let twice = one.replace(r#"["g"]"#, r#"["g", "g"]"#);
    assert!(refused(&twice, sizes).contains("task 'a' has the output 'g' twice; list it once"));
    assert!(refused(one, r#""f": 1, "g": 2, "f": 3"#).contains("'f' appears twice in one object"));
    let without = one.replace(r#""work_seconds": 1, "#, "");
    let said = refused(&without, sizes);
    assert!(said.contains("'work_seconds' is missing; expected a workflow: {\"tasks\": "), "{said}");
    assert!(refused(&one.replace(": 1,", ": -0.5,"), sizes).contains("work_seconds -0.5"));
    assert!(refused("{", "").starts_with("w.json: "));
}

#[test]
fn tasks_come_after_those_they_depend_on() {
    let text = r#"{"tasks": [
        {"id": "late", "work_seconds": 1, "inputs": ["x", "in"], "outputs": ["out"]},
        {"id": "free", "work_seconds": 2, "inputs": [], "outputs": []},
        {"id": "first", "work_seconds": 3, "inputs": ["in"], "outputs": ["x"]}],
        "files": {"x": 10, "in": 5, "out": 7}}"#;
    let workflow = Workflow::parse(text, "w.json").unwrap();
    let ids: Vec<&str> = workflow.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["free", "first", "late"]);
    assert_eq!((workflow.outside_bytes(2), workflow.unread_bytes(2), workflow.unread_bytes(1)), (5, 7, 0));
    let x = workflow.files.iter().find(|file| file.name == "x").unwrap();
    assert_eq!((x.producer, x.readers.as_slice()), (Some(1), &[2][..]));
}
