//! A store behind the cache that is a server: as any other, whatever it answers.

use crate::cache::{compile, warnings};
use crate::shared::{behind, check_miss};
use rc::cache::Settings;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a server does beside keeping entries.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Good,
    /// Takes nothing.
    Full,
    /// Listens, and says nothing.
    Hangs,
    /// Sends a byte now and then.
    Drips,
    /// Sends other bytes than it got.
    Lies,
    /// Ends in the middle of an entry.
    Cuts,
    /// Says nothing that is HTTP.
    Babbles,
    /// Has entries elsewhere.
    Points,
    Fails,
}

type Entries = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A server on the loopback address: its own, which threads serve until the process ends.
fn server(manner: Manner, entries: &Entries) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/rc/", listener.local_addr().unwrap());
    let entries = entries.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let entries = entries.clone();
            // What a client that went away makes of the connection is its own.
            std::thread::spawn(move || _ = answer(stream, manner, &entries));
        }
    });
    address
}

fn answer(mut stream: TcpStream, manner: Manner, entries: &Entries) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_string());
    assert!(path.starts_with("/rc/") && path.ends_with(".rcp"), "{path}");
    match manner {
        Manner::Hangs => std::thread::sleep(Duration::from_secs(60)),
        Manner::Babbles => stream.write_all(b"ok\n")?,
        Manner::Fails => stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")?,
        Manner::Points => {
            stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")?;
        }
        Manner::Full if method == "PUT" => {
            stream.write_all(b"HTTP/1.1 507 Full\r\nContent-Length: 0\r\n\r\n")?;
        }
        _ if method == "PUT" => {
            entries.lock().unwrap().insert(path, body);
            stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")?;
        }
        _ => {
            let Some(mut bytes) = entries.lock().unwrap().get(&path).cloned() else {
                return stream.write_all(b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
            };
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
            match manner {
                Manner::Lies => bytes[100] ^= 1,
                Manner::Cuts => bytes.truncate(bytes.len() / 2),
                _ => {}
            }
            for byte in bytes.iter().filter(|_| manner == Manner::Drips) {
                stream.write_all(&[*byte])?;
                std::thread::sleep(Duration::from_millis(20));
            }
            stream.write_all(&bytes)?;
        }
    }
    Ok(())
}

#[test]
fn what_one_machine_gave_a_server_another_finds() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let entries = Entries::default();
    let reader = Settings::at(server(Manner::Good, &entries));
    let first = compile(&behind(&a, &reader), 2.0);
    assert!(!first.cached && warnings(&first).is_empty() && entries.lock().unwrap().is_empty());
    let first = compile(&behind(&a, &Settings { writes: true, ..reader.clone() }), 2.0);
    assert!(!first.cached && warnings(&first).is_empty(), "{:?}", warnings(&first));
    assert_eq!(entries.lock().unwrap().len(), 1);
    let second = compile(&behind(&b, &reader), 2.0);
    assert!(second.cached && warnings(&second).is_empty(), "{:?}", warnings(&second));
    assert_eq!(first.module.to_string(), second.module.to_string());
    assert!(!compile(&behind(&b, &reader), 3.0).cached);
}

#[test]
fn whatever_a_server_does_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine");
    let entries = Entries::default();
    let good = Settings { writes: true, ..Settings::at(server(Manner::Good, &entries)) };
    compile(&behind(&mine, &good), 2.0);
    for (manner, says) in [
        (Manner::Hangs, "is not asked any more"),
        (Manner::Drips, "is not asked any more"),
        (Manner::Cuts, "is not asked any more"),
        (Manner::Babbles, "is not asked any more"),
        (Manner::Fails, "it answers 500"),
        (Manner::Points, "it answers 302"),
        (Manner::Lies, "another hash"),
    ] {
        let patience = Duration::from_millis(300);
        let settings = Settings { patience, ..Settings::at(server(manner, &entries)) };
        let start = Instant::now();
        check_miss(&behind(&mine, &settings), says);
        assert!(start.elapsed() < Duration::from_secs(60), "{says}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check_miss(&behind(&mine, &Settings::at(format!("http://{nobody}/"))), "is not asked any more");
}

#[test]
fn a_server_that_hangs_is_waited_for_once() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("http://{}/", listener.local_addr().unwrap());
    listener.set_nonblocking(true).unwrap();
    let patience = Duration::from_millis(200);
    let settings = Settings { patience, writes: true, ..Settings::at(place) };
    check_miss(&behind(&folder.path().join("mine"), &settings), "is not asked any more");
    let asked: Vec<_> = std::iter::from_fn(|| listener.accept().ok()).collect();
    assert_eq!(asked.len(), 1, "connections to a server that does not answer");
}

#[test]
fn a_server_that_is_full_is_not_written_to_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { writes: true, ..Settings::at(server(Manner::Full, &Entries::default())) };
    check_miss(&behind(&folder.path().join("mine"), &settings), "is not written to any more: it answers 507");
}
