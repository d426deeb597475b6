//! Drawings: points and lines on two axes.

use super::markup::{Markup, short};
use super::scale::{Scale, real};
use super::shapes::{COLOURS, DASHES, MARKS};

const WIDTH: f64 = 640.0;
/// Height of the space between the axes, and room around it.
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 86.0;
const RIGHT: f64 = 18.0;
const BELOW: f64 = 46.0;
/// Height of a line of the legend, and how wide a letter is at most.
const ROW: f64 = 18.0;
const LETTER: f64 = 6.6;
/// From one series to the next at the same name.
const ASIDE: f64 = 9.0;
/// Characters of a name, and names on an axis, that have room.
const LONGEST: usize = 64;
const MOST_NAMES: usize = 16;

/// A drawing.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// What one has to know to read it.
    pub(crate) note: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// An axis: what it measures, with its unit.
#[derive(Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Linear,
    /// Linear, and up to 100 at least.
    Percent,
    Log,
    /// Values are indices of these.
    Names(Vec<String>),
}

/// Points that belong together.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) look: Look,
    pub(crate) points: Vec<Point>,
}

/// How a series looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) colour: usize,
    pub(crate) mark: usize,
    pub(crate) dash: usize,
    /// Marks are hollow.
    pub(crate) hollow: bool,
    /// A limit in grey.
    pub(crate) limit: bool,
    /// Points are by themselves.
    pub(crate) apart: bool,
}

impl Look {
    /// The look of one of several.
    pub(crate) fn nth(nth: usize) -> Self {
        let dash = nth / COLOURS % DASHES.len();
        Self { colour: nth % COLOURS, mark: nth % MARKS.len(), dash, hollow: false, limit: false, apart: false }
    }

    /// The look of the second, third and so on of what has the same colour.
    pub(crate) fn variant(self, nth: usize) -> Self {
        let (mark, dash) = ((self.mark + nth) % MARKS.len(), (self.dash + nth) % DASHES.len());
        Self { mark, dash, hollow: nth % 2 == 1, ..self }
    }

    /// The look of what cannot be exceeded.
    pub(crate) fn limit() -> Self {
        Self { colour: 0, mark: 0, dash: 2, hollow: true, limit: true, apart: false }
    }
}

/// A value, how far it ranges, and what it says.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) range: Option<[f64; 2]>,
    pub(crate) title: String,
    /// What stands above it, if anything.
    pub(crate) label: String,
}

/// Where points go.
struct Frame {
    x: Scale,
    y: Scale,
    top: f64,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.at(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.at(value)) * HEIGHT
    }
}

impl Chart {
    /// Draws it, unless it has no points.
    pub(crate) fn draw(&self, page: &mut Markup) {
        if self.series.iter().all(|series| series.points.is_empty()) {
            return;
        }
        page.within("figure", &[], |page| {
            page.leaf("figcaption", &[], &self.title);
            let frame = self.frame();
            let size = format!("0 0 {WIDTH} {}", frame.top + HEIGHT + BELOW);
            let words = format!("{}: {} over {}", self.title, self.y.label, self.x.label);
            let attributes: &[(_, &dyn std::fmt::Display)] = &[
                ("xmlns", &"http://www.w3.org/2000/svg"),
                ("viewBox", &size),
                ("role", &"img"),
                ("aria-label", &words),
            ];
            page.within("svg", attributes, |page| {
                self.legend(page);
                self.axes(page, &frame);
                let mut nth = 0;
                for series in &self.series {
                    series.draw(page, &frame, if series.look.limit { 0.0 } else { self.aside(nth) });
                    nth += usize::from(!series.look.limit);
                }
            });
            if !self.note.is_empty() {
                page.leaf("p", &[("class", &"note")], &self.note);
            }
        });
    }

    /// How far the points of a series are from the middle of their name, so that they hide no others.
    fn aside(&self, nth: usize) -> f64 {
        let Kind::Names(names) = &self.x.kind else { return 0.0 };
        let count = real(self.series.iter().filter(|series| !series.look.limit).count().max(1));
        let room = (WIDTH - LEFT - RIGHT) / real(names.len().max(1)) * 0.7;
        (real(nth) - (count - 1.0) / 2.0) * ASIDE.min(room / count)
    }

    fn frame(&self) -> Frame {
        let rows = self.legend_places().last().map_or(0.0, |(_, y)| *y + ROW);
        let values = |pick: fn(&Point) -> f64| self.series.iter().flat_map(|series| &series.points).map(pick);
        let ends =
            self.series.iter().flat_map(|series| &series.points).flat_map(|point| point.range.into_iter().flatten());
        let ys = values(|point| point.y).chain(ends);
        Frame { x: self.x.scale(values(|point| point.x)), y: self.y.scale(ys), top: rows + 26.0 }
    }

    /// Where the entries of the legend go. A single one needs none.
    fn legend_places(&self) -> Vec<(f64, f64)> {
        let (mut x, mut y) = (LEFT, 4.0);
        let mut places = Vec::new();
        for series in self.series.iter().filter(|_| self.series.len() > 1) {
            let wide = 36.0 + LETTER * real(series.name.chars().count().min(LONGEST));
            if x > LEFT && x + wide > WIDTH {
                (x, y) = (LEFT, y + ROW);
            }
            places.push((x, y));
            x += wide + 10.0;
        }
        places
    }

    fn legend(&self, page: &mut Markup) {
        for (series, (x, y)) in self.series.iter().zip(self.legend_places()) {
            let class = series.look.class();
            page.within(
                "g",
                &[("class", &class), ("transform", &format!("translate({x:.1} {:.1})", y + 8.0))],
                |page| {
                    page.empty(
                        "path",
                        &[("d", &"M0 0h26"), ("class", &"line"), ("stroke-dasharray", &series.look.dashes())],
                    );
                    page.within("g", &[("transform", &"translate(13 0)")], |page| series.look.mark(page));
                    page.leaf("text", &[("x", &"32"), ("y", &"4"), ("class", &"key")], short(&series.name, LONGEST));
                },
            );
        }
    }

    fn axes(&self, page: &mut Markup, frame: &Frame) {
        let (bottom, right) = (frame.top + HEIGHT, WIDTH - RIGHT);
        page.leaf("text", &[("x", &"8"), ("y", &(frame.top - 12.0)), ("class", &"axis")], &self.y.label);
        let middle = f64::midpoint(LEFT, right);
        let attributes: &[(_, &dyn std::fmt::Display)] =
            &[("x", &middle), ("y", &(bottom + 40.0)), ("class", &"axis mid")];
        page.leaf("text", attributes, &self.x.label);
        for (value, label) in frame.y.ticks() {
            let y = format!("{:.1}", frame.y(value));
            page.empty("path", &[("class", &"grid"), ("d", &format!("M{LEFT} {y}H{right}"))]);
            page.leaf("text", &[("x", &(LEFT - 8.0)), ("y", &y), ("class", &"tick-y")], label);
        }
        let named = match &self.x.kind {
            Kind::Names(names) => {
                let every = names.len() / MOST_NAMES + 1;
                let all = names.iter().enumerate().filter(|(nth, _)| nth % every == 0);
                let room = (right - LEFT) / LETTER / real(names.len().div_ceil(every).max(1));
                let letters = (2..LONGEST / 2).take_while(|letters| real(*letters) + 1.0 < room).count() + 1;
                all.map(|(nth, name)| (real(nth), short(name, letters))).collect()
            }
            _ => frame.x.ticks(),
        };
        for (value, label) in named {
            let x = format!("{:.1}", frame.x(value));
            page.empty("path", &[("class", &"grid"), ("d", &format!("M{x} {bottom}v4"))]);
            page.leaf("text", &[("x", &x), ("y", &(bottom + 18.0)), ("class", &"tick-x")], label);
        }
        page.empty("path", &[("class", &"base"), ("d", &format!("M{LEFT} {bottom}H{right}"))]);
    }
}

impl Axis {
    pub(crate) fn new(label: impl Into<String>, kind: Kind) -> Self {
        Self { label: label.into(), kind }
    }

    fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        match &self.kind {
            Kind::Linear => Scale::linear(values),
            Kind::Percent => Scale::linear(values.chain([100.0])),
            Kind::Log => Scale::log(values),
            Kind::Names(names) => Scale::Names { count: names.len() },
        }
    }
}

impl Look {
    fn class(self) -> String {
        let colour = if self.limit { "limit".to_owned() } else { format!("c{}", self.colour % COLOURS) };
        if self.hollow { format!("{colour} hollow") } else { colour }
    }

    fn dashes(self) -> &'static str {
        DASHES[self.dash % DASHES.len()]
    }

    fn mark(self, page: &mut Markup) {
        if !self.limit {
            page.empty("path", &[("class", &"mark"), ("d", &MARKS[self.mark % MARKS.len()])]);
        }
    }
}

impl Series {
    fn draw(&self, page: &mut Markup, frame: &Frame, aside: f64) {
        let places = self.points.iter().map(|point| (frame.x(point.x) + aside, frame.y(point.y)));
        let line: Vec<String> = places.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        page.within("g", &[("class", &self.look.class())], |page| {
            let d = format!("M{}", line.join(if self.look.apart { "M" } else { "L" }));
            page.empty("path", &[("class", &"line"), ("d", &d), ("stroke-dasharray", &self.look.dashes())]);
            for (point, place) in self.points.iter().zip(&line) {
                if let Some([low, high]) = point.range {
                    let (x, low, high) = (frame.x(point.x) + aside, frame.y(low), frame.y(high));
                    let d = format!("M{x:.1} {low:.1}V{high:.1}M{:.1} {high:.1}h6", x - 3.0);
                    page.empty("path", &[("class", &"range"), ("d", &d)]);
                }
                page.within("g", &[("transform", &format!("translate({place})"))], |page| {
                    page.leaf("title", &[], &point.title);
                    self.look.mark(page);
                    if !point.label.is_empty() {
                        page.leaf("text", &[("y", &"-9"), ("class", &"mid")], &point.label);
                    }
                });
            }
        });
    }
}
