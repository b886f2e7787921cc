//! Messages on standard input and output.

use lsp_server::Message;
use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, Sender, channel};

/// What comes from the editor.
pub enum Incoming {
    Message(Message),
    /// Bytes that are no message, and why.
    Malformed(String),
}

/// Starts a thread that reads and one that writes. The receiver ends where standard input does.
pub fn start() -> (Receiver<Incoming>, Sender<Message>) {
    let (in_sender, receiver) = channel();
    let (sender, out_receiver) = channel::<Message>();
    std::thread::spawn(move || read(&mut io::stdin().lock(), &in_sender));
    std::thread::spawn(move || {
        let mut out = io::stdout();
        // An editor that hung up is noticed by the reader.
        out_receiver.into_iter().try_for_each(|message| message.write(&mut out))
    });
    (receiver, sender)
}

/// Reads messages until the end. What is malformed is reported and skipped, a line of a head or a whole body at a time.
fn read(input: &mut impl BufRead, to: &Sender<Incoming>) {
    loop {
        let incoming = match Message::read(input) {
            Ok(Some(message)) => Incoming::Message(message),
            Ok(None) => return,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            Err(error) => Incoming::Malformed(error.to_string()),
        };
        if to.send(incoming).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_messages_are_skipped() {
        let good = r#"{"jsonrpc":"2.0","method":"x","params":{}}"#;
        let head = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let text = format!("{}{}Nonsense\r\n{}", head("{not json"), head(good), head(good));
        let (sender, receiver) = channel();
        read(&mut text.as_bytes(), &sender);
        drop(sender);
        let kinds: Vec<bool> = receiver.into_iter().map(|m| matches!(m, Incoming::Message(_))).collect();
        assert_eq!(kinds.iter().filter(|is_good| **is_good).count(), 2, "{kinds:?}");
        assert!(!kinds[0]);
    }
}
