//! The arena as a picture: time to the right, addresses upwards, a rectangle for each buffer.

use super::csv::Buffers;
use rc_passes::plan_buffers::pack::Packing;
use std::io::{self, Write};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 700.0;

pub fn draw(out: &mut dyn Write, buffers: &Buffers, packing: &Packing, bound: i64) -> io::Result<()> {
    let first = buffers.items.iter().map(|i| i.first).min().unwrap_or(0);
    let end = buffers.items.iter().map(|i| i.end).max().unwrap_or(1);
    let across = WIDTH / (end - first).max(1) as f64;
    let up = HEIGHT / packing.height.max(1) as f64;
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {}" font-family="sans-serif">"#,
        HEIGHT + 30.0
    )?;
    writeln!(out, r##"<rect width="{WIDTH}" height="{HEIGHT}" fill="#f6f6f6"/>"##)?;
    for ((id, item), &offset) in buffers.ids.iter().zip(&buffers.items).zip(&packing.offsets) {
        let (x, width) = ((item.first - first) as f64 * across, (item.end - item.first) as f64 * across);
        let (y, height) = (HEIGHT - (offset + item.size) as f64 * up, item.size as f64 * up);
        // Neighbours in the file get colours far apart.
        let hue = (item.first * 137 + item.size as usize % 360) % 360;
        writeln!(
            out,
            r#"<rect x="{x:.2}" y="{y:.2}" width="{width:.2}" height="{height:.2}" fill="hsl({hue},55%,70%)" stroke="white" stroke-width="0.3"><title>{}: {} bytes at {offset}, alive in {}..{}</title></rect>"#,
            escaped(id),
            item.size,
            item.first,
            item.end
        )?;
    }
    let line = HEIGHT - bound as f64 * up;
    writeln!(out, r#"<path d="M0 {line:.2}H{WIDTH}" stroke="black" stroke-dasharray="6 4"/>"#)?;
    writeln!(
        out,
        r#"<text x="4" y="{}" font-size="16">{} buffers, {} bytes; dashed: the lower bound, {bound}</text>"#,
        HEIGHT + 20.0,
        buffers.items.len(),
        packing.height
    )?;
    writeln!(out, "</svg>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
