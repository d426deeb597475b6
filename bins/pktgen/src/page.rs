//! Pages of results: one file of HTML with drawings in SVG, without script and without anything from elsewhere.

pub(crate) mod chart;
pub(crate) mod markup;
pub(crate) mod scale;
mod shapes;

use crate::calibrate::target::Target;
use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use markup::Markup;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// What each page begins with.
const DOCTYPE: &str = "<!DOCTYPE html>";

/// What a page's head names as its maker.
const GENERATOR: &str = "pktgen";

/// Bytes in which a page's head says who made it.
const HEAD: u64 = 512;

/// Writes a page to the file of `--html`. A file that is there is replaced only if it is a page of this program's.
pub(crate) fn write(file: &Path, page: &str) -> Result<(), Failure> {
    open(file)?.replace(page).with_context(|| unwritable(file))?;
    Ok(())
}

/// Refuses a file of `--html` that no page can be written to, and leaves it as it is. Of a pipe it waits for no reader.
pub(crate) fn check(file: &Path) -> Result<(), Failure> {
    let is_stream = file.metadata().is_ok_and(|of| !of.is_file() && !of.is_dir());
    if is_stream { Ok(()) } else { open(file).map(drop) }
}

fn open(file: &Path) -> Result<Target, Failure> {
    let target = Target::open(file).with_context(|| unwritable(file))?;
    if target.is_file() && !may_be_replaced(file).with_context(|| unwritable(file))? {
        return Err(anyhow!("--html {}: is there and is no page of pktgen's; name another file", file.display()).into());
    }
    Ok(target)
}

fn unwritable(file: &Path) -> String {
    format!("--html {}: cannot be written; name another file", file.display())
}

/// Whether there is no file, or nothing or a page of this program's in it.
fn may_be_replaced(file: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        file => file?.take(HEAD).read_to_end(&mut begin)?,
    };
    let begin = String::from_utf8_lossy(&begin);
    let is_ours =
        || begin.starts_with(DOCTYPE) && begin.contains(&format!("name=\"generator\" content=\"{GENERATOR}\""));
    Ok(begin.is_empty() || is_ours())
}

/// Light, dark and on paper.
const STYLE: &str = include_str!("page/style.css");

/// Makes a page of a title and what `body` writes. It is well-formed XML, too.
pub(crate) fn page(title: &str, body: impl FnOnce(&mut Markup)) -> String {
    let mut page = Markup::default();
    page.within("html", &[("lang", &"en"), ("xmlns", &"http://www.w3.org/1999/xhtml")], |page| {
        page.within("head", &[], |page| {
            page.empty("meta", &[("charset", &"utf-8")]);
            page.empty("meta", &[("name", &"generator"), ("content", &GENERATOR)]);
            page.empty("meta", &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")]);
            page.empty("meta", &[("name", &"color-scheme"), ("content", &"light dark")]);
            page.leaf("title", &[], title);
            page.style(STYLE);
        });
        page.within("body", &[], |page| {
            page.leaf("h1", &[], title);
            body(page);
        });
    });
    format!("{DOCTYPE}\n{}\n", page.into_text())
}

/// A column: its title, and whether it has numbers.
pub(crate) type Column<'a> = (&'a str, bool);

/// A table.
pub(crate) fn table(page: &mut Markup, columns: &[Column<'_>], rows: &[Vec<String>]) {
    let attributes = |is_number: &bool| -> &[(&'static str, &dyn std::fmt::Display)] {
        if *is_number { &[("class", &"n")] } else { &[] }
    };
    page.within("div", &[("class", &"wide")], |page| {
        page.within("table", &[], |page| {
            page.within("thead", &[], |page| {
                page.within("tr", &[], |page| {
                    columns.iter().for_each(|(title, is_number)| page.leaf("th", attributes(is_number), title));
                });
            });
            page.within("tbody", &[], |page| {
                for row in rows {
                    page.within("tr", &[], |page| {
                        row.iter().zip(columns).for_each(|(cell, (_, is_number))| {
                            page.leaf("td", attributes(is_number), cell);
                        });
                    });
                }
            });
        });
    });
}
