//! The buffers as text: `id,lower,upper,size` and a line for each.

use rc_ir::loc::Source;
use rc_ir::{Diagnostic, Result};
use rc_passes::plan_buffers::pack::{Item, Packing};
use std::io::{self, Write};

pub struct Buffers {
    pub ids: Vec<String>,
    pub items: Vec<Item>,
}

const HEADER: &str = "id,lower,upper,size";

/// # Errors
/// What is wrong with a line, with its place.
pub fn parse(name: &str, text: &str) -> Result<Buffers> {
    let source = Source::register(name, text.to_string());
    let mut out = Buffers { ids: Vec::new(), items: Vec::new() };
    let (mut at, mut total) = (0usize, 0i64);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let start = at;
        at += line.len();
        let line = line.trim_end();
        if number == 0 {
            if line != HEADER {
                let error = Diagnostic::error(source.loc(0), "expects the header of buffers").with_len(line.len());
                return Err(error.help(format!("the first line reads '{HEADER}'")));
            }
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let fail = |column: usize, length: usize, what: String| {
            Diagnostic::error(source.loc(start + column), what).with_len(length)
        };
        let fields = fields(line);
        let [(_, id), lower, upper, size] = fields[..] else {
            let what = format!("expects 4 fields, and the line has {}", fields.len());
            return Err(fail(0, line.len(), what).help(HEADER.to_string()));
        };
        let field = |(column, text): (usize, &str)| match text.trim().parse::<i64>() {
            Ok(n) if n >= 0 => Ok(n),
            Ok(n) => Err(fail(column, text.len(), format!("expects a number that is not negative, and has {n}"))),
            Err(_) => {
                Err(fail(column, text.len(), format!("expects an integer below 2^63, and has '{}'", text.trim())))
            }
        };
        let (first, end, bytes) = (field(lower)?, field(upper)?, field(size)?);
        if first >= end {
            let what = format!("expects upper to be more than lower, and the buffer lives in {first}..{end}");
            return Err(fail(lower.0, upper.0 + upper.1.len() - lower.0, what));
        }
        total = total.checked_add(bytes).ok_or_else(|| {
            fail(size.0, size.1.len(), "with this buffer the sizes add up to more than 63 bits hold".into())
        })?;
        out.ids.push(id.trim().to_string());
        out.items.push(Item { first: first as usize, end: end as usize, size: bytes });
    }
    if at == 0 {
        return Err(Diagnostic::error(source.loc(0), "expects the header of buffers, and the file is empty")
            .help(format!("the first line reads '{HEADER}'")));
    }
    Ok(out)
}

/// The fields of a line with their columns.
fn fields(line: &str) -> Vec<(usize, &str)> {
    let mut column = 0;
    line.split(',')
        .map(|field| {
            let here = column;
            column += field.len() + 1;
            (here, field)
        })
        .collect()
}

pub fn write(out: &mut dyn Write, buffers: &Buffers, packing: &Packing) -> io::Result<()> {
    writeln!(out, "{HEADER},offset")?;
    for ((id, item), offset) in buffers.ids.iter().zip(&buffers.items).zip(&packing.offsets) {
        writeln!(out, "{id},{},{},{},{offset}", item.first, item.end, item.size)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse("t.csv", text).err().expect("not accepted").render()
    }

    #[test]
    fn reads_what_it_writes() {
        let buffers = parse("t.csv", "id,lower,upper,size\na, 0, 3, 8\nb,3,4,16\n").unwrap();
        let mut text = Vec::new();
        write(&mut text, &buffers, &Packing { offsets: vec![0, 0], height: 16 }).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "id,lower,upper,size,offset\na,0,3,8,0\nb,3,4,16,0\n");
    }

    #[test]
    fn bad_lines_are_shown() {
        assert!(message("").contains("the file is empty"));
        assert!(message("id,first,last,size\n").contains("t.csv:1:1"));
        assert!(message("id,lower,upper,size\na,0,3\n").contains("the line has 3"));
        let negative = message("id,lower,upper,size\na,0,3,-8\n");
        assert!(negative.contains("t.csv:2:7") && negative.contains("has -8"), "{negative}");
        assert!(message("id,lower,upper,size\na,3,3,8\n").contains("lives in 3..3"));
        assert!(message("id,lower,upper,size\na,5,3,8\n").contains("t.csv:2:3"));
        let half = i64::MAX / 2 + 1;
        let sum = message(&format!("id,lower,upper,size\na,0,1,{half}\nb,0,1,{half}\n"));
        assert!(sum.contains("t.csv:3:7") && sum.contains("63 bits"), "{sum}");
        assert!(message("id,lower,upper,size\na,0,1,9223372036854775808\n").contains("below 2^63"));
    }
}
