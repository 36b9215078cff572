//! Classes: `DefClass name { DefState { C } DefMethod name(…) … }`.

use super::cursor::{Parser, SourceLanguage};
use super::lexer::{IdlError, Position, Token};
use crate::c_text::{CText, Class, Stub, StubCode, stub_symbol};
use crate::method::{FINALIZE, INITIALIZE, class_of, is_automatic};
use crate::signature::{Body, Definition, Language, Signature};

impl Parser<'_> {
    /// Parses the text after `DefClass`.
    pub(crate) fn class(&mut self) -> Result<Class, IdlError> {
        let (short, place) = self.name("the class's name")?;
        let name = self.full_name(&short, place)?;
        let about = self.description()?;
        let options = self.options()?;
        if options.work.is_some() {
            return Err(
                self.error(place, "'CalcOrder' belongs to a method, not to a class; write it there".to_string())
            );
        }
        let mut class = Class { name, about, state: None, methods: Vec::new(), stubs: Vec::new() };
        let opening = self.mark("{")?;
        loop {
            let (token, place) = self.next()?;
            match &token {
                Token::Name(word) if word == "DefState" => self.state(&mut class, place)?,
                Token::Name(word) if word == "DefMethod" => self.method(&mut class, &short, options.language)?,
                Token::Mark(";") => {}
                Token::Mark("}") => break,
                Token::End => return Err(self.error(opening, "this '{' has no closing '}'".to_string())),
                other => return Err(self.expected("'DefState', 'DefMethod' or '}'", other, place)),
            }
        }
        if class.methods.iter().all(|method| is_run(&method.signature.name)) {
            return Err(self.error(place, format!("class '{short}' has no method to call; write a DefMethod")));
        }
        for method in [INITIALIZE, FINALIZE] {
            self.empty_method(&mut class, method, place);
        }
        Ok(class)
    }

    fn state(&mut self, class: &mut Class, place: Position) -> Result<(), IdlError> {
        let opening = self.mark("{")?;
        let text = self.c_text(opening)?;
        match class.state.replace(text) {
            None => Ok(()),
            Some(_) => Err(self.error(place, "a second 'DefState'; write all variables into one".to_string())),
        }
    }

    fn method(&mut self, class: &mut Class, short: &str, language: Option<SourceLanguage>) -> Result<(), IdlError> {
        let (method, place) = self.name("the method's name")?;
        let name = self.full_name(&format!("{short}.{method}"), place)?;
        let (definition, stub) = self.described(name, place, language, class.methods.len())?;
        if is_automatic(&method) && !definition.signature.params.is_empty() {
            let message =
                format!("'{method}' runs automatically, so it has no parameters; use another name for the method");
            return Err(self.error(place, message));
        }
        if stub.as_ref().is_some_and(|stub| stub.on_ranks.is_some()) {
            let message = "a method does not run on several ranks: an object is one process; leave Backend out";
            return Err(self.error(place, message.to_string()));
        }
        class.methods.push(definition);
        class.stubs.extend(stub);
        Ok(())
    }

    /// Adds an empty automatic method if the class does not define it.
    fn empty_method(&self, class: &mut Class, method: &str, place: Position) {
        let name = format!("{}.{method}", class.name);
        if class.methods.iter().any(|written| written.signature.name == name) {
            return;
        }
        let (params, callbacks) = (Vec::new(), Vec::new());
        let signature = Signature { name, params, callbacks, work: None, uses: Vec::new(), about: String::new() };
        let code = StubCode::Body(CText { line: place.line, column: place.column, text: " ".into() });
        class.stubs.push(Stub {
            definition: class.methods.len(),
            line: place.line,
            is_cpp: false,
            code,
            on_ranks: None,
        });
        let symbol = stub_symbol(&signature);
        let body = Body::Native { language: Language::C, symbol, args: Vec::new(), result: None };
        class.methods.push(Definition { signature, body });
    }
}

fn is_run(name: &str) -> bool {
    class_of(name).is_some_and(|(_, method)| is_automatic(method))
}
