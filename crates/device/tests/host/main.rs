//! Discovery, status and binding on made trees of `/sys`, `/proc` and `/dev`.

#[cfg(test)]
mod bind;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod open;
#[cfg(test)]
mod pci;
#[cfg(test)]
mod tree;
