//! What a person may want to know about the parts of a card.

use crate::regs::{FCCFG, MFLCN, fccfg, mflcn};
use crate::wait::{Timed, read};
use crate::{Cage, MacType, Media, Model, Result, eeprom, phy};
use device::Device;

/// Returns the parts of an open device, each with a name.
pub(crate) fn describe<D: Device>(regs: &Timed<D>, model: Model, cage: Option<&Cage>) -> Vec<(&'static str, String)> {
    let mut parts = Vec::new();
    match cage {
        Some(Cage::Module(module)) => parts.push(("module", module.to_string())),
        Some(Cage::Empty) => parts.push(("module", "none".to_owned())),
        Some(Cage::Unreadable(problem)) => parts.push(("module", problem.clone())),
        None => {}
    }
    let or_error = |text: Result<String>| text.unwrap_or_else(|error| error.to_string());
    if model.media == Media::Copper && model.mac != MacType::Mac82599 {
        parts.push(("PHY", or_error(phy::identify(regs, model.mac).map(|phy| phy.to_string()))));
    }
    let image = eeprom::image_number(regs, model.mac);
    let image = image.map(|number| number.map_or("not told".to_owned(), |number| format!("image {number:#010x}")));
    parts.push(("firmware", or_error(image)));
    parts.push(("PAUSE", or_error(pause(regs))));
    parts
}

fn pause<D: Device>(regs: &Timed<D>) -> Result<String> {
    let obeyed = mflcn::RFCE.is_set(read(regs, MFLCN)?);
    let sent = fccfg::TFCE.get(read(regs, FCCFG)?) != 0;
    let received = if obeyed { "obeyed" } else { "passed on like any frame" };
    Ok(format!("{received}, {}", if sent { "sent" } else { "not sent" }))
}
