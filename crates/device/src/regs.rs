//! Typed registers: a register map is written once, one line for each register, and says how each may be accessed.

use crate::{Bar as _, Device, Error, PciIds, Result};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A device family's registers, declared with [`crate::registers!`].
///
/// # Safety
///
/// For every device that `covers` accepts, no write to a register of the map whose access class is not [`Dma`] can
/// make the device access memory that it was not given.
pub unsafe trait RegisterMap: 'static {
    /// Every line of the map, in its order; none, unless [`crate::registers!`] declares the map.
    const LINES: &'static [RegisterLine] = &[];

    /// Returns whether a device with these ids has these registers.
    fn covers(ids: PciIds) -> bool;
}

/// A line of a register map: a register, or an array of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisterLine {
    /// The datasheet's name.
    pub name: &'static str,
    /// Offset of the first register, in bytes.
    pub offset: u32,
    /// Distance between two registers of an array, in bytes; 0 if there is one register.
    pub stride: u32,
    /// Number of registers.
    pub count: u32,
    /// Whether reading a register tells its value and changes nothing, as far as its access class says.
    pub is_plain: bool,
}

impl RegisterLine {
    /// Creates the line of a register or an array; [`crate::registers!`] calls this.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, offset: u32, (stride, count): (u32, u32), is_plain: bool) -> Self {
        Self { name, offset, stride, count, is_plain }
    }
}

/// What [`Regs::dump`] does with a line of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The registers are read, unless their access class says that this would change them.
    Value,
    /// They are listed without a value, as reading would change them.
    NoValue,
    /// They are left out, as this device has none such.
    Absent,
}

/// A register as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisterValue {
    /// The datasheet's name, with the index in an array, such as `RAL[3]`.
    pub name: String,
    /// Offset in bytes.
    pub offset: u32,
    /// The value; `None` if reading the register would change it.
    pub value: Option<u32>,
}

/// The author's promise that the map `M`, declared with [`crate::registers!`], is as [`RegisterMap`] requires.
pub struct MapPromise<M>(PhantomData<fn(M)>);

impl<M> MapPromise<M> {
    /// Makes that promise.
    ///
    /// # Safety
    ///
    /// That of [`RegisterMap`], for the map that the promise is made for.
    #[must_use]
    pub const unsafe fn given() -> Self {
        Self(PhantomData)
    }
}

impl<M> fmt::Debug for MapPromise<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MapPromise")
    }
}

/// How a register may be accessed. No classes can be added to those below.
pub trait Access: sealed::Class + 'static {}
/// Access classes that can be read.
pub trait Readable: Access {}
/// Access classes that safe code can write.
pub trait Writable: Access {}

mod sealed {
    /// The classes of this module.
    pub trait Class {}
}

macro_rules! access {
    ($($(#[$doc:meta])* $name:ident: $($can:ident)*;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl sealed::Class for $name {}
        impl Access for $name {}
        $(impl $can for $name {})*
    )*};
}
access! {
    /// Read only (`ro`).
    ReadOnly: Readable;
    /// Read and write (`rw`).
    ReadWrite: Readable Writable;
    /// Write only (`wo`).
    WriteOnly: Writable;
    /// Reading clears it (`rc`): statistics and interrupt causes.
    ReadClears: Readable;
    /// The device learns from it an address, a length, a ring index or that it may start (`dma`): writing is unsafe.
    Dma: Readable;
}

/// One register of map `M`: its byte offset and name.
pub struct Reg<M, A> {
    offset: u32,
    name: &'static str,
    map: PhantomData<fn(M, A)>,
}

impl<M, A> Clone for Reg<M, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M, A> Copy for Reg<M, A> {}

impl<M, A> fmt::Debug for Reg<M, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:#07x}", self.name, self.offset)
    }
}

impl<M, A> Reg<M, A> {
    /// Declares the register `name` at `offset` bytes, under the promise for its map: if `A` is not [`Dma`], then on
    /// every device that the map covers, no write to the register makes the device access memory that it was not given.
    /// [`crate::registers!`] calls this, and nothing else should.
    #[doc(hidden)]
    #[must_use]
    pub const fn declared(_: MapPromise<M>, name: &'static str, offset: u32) -> Self {
        Self::at_offset(name, offset)
    }

    const fn at_offset(name: &'static str, offset: u32) -> Self {
        Self { offset, name, map: PhantomData }
    }

    /// Returns the offset in bytes.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.offset
    }

    /// Returns the datasheet's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }
}

/// An array of `count` registers at a constant `stride` in bytes.
pub struct RegArray<M, A> {
    base: u32,
    stride: u32,
    count: u32,
    name: &'static str,
    map: PhantomData<fn(M, A)>,
}

impl<M, A> Clone for RegArray<M, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M, A> Copy for RegArray<M, A> {}

impl<M, A> fmt::Debug for RegArray<M, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]@{:#07x}", self.name, self.count, self.base)
    }
}

impl<M, A> RegArray<M, A> {
    /// Declares `count` registers, like [`Reg::declared`].
    #[doc(hidden)]
    #[must_use]
    pub const fn declared(_: MapPromise<M>, name: &'static str, base: u32, stride: u32, count: u32) -> Self {
        Self { base, stride, count, name, map: PhantomData }
    }

    /// Returns register `index` of the array.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`Self::count`]: a mistake in the driver, not by a user.
    #[must_use]
    pub const fn at(self, index: u32) -> Reg<M, A> {
        assert!(index < self.count, "register array index out of range");
        Reg::at_offset(self.name, self.base + self.stride * index)
    }

    /// Returns the number of registers.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }
}

/// A bit field of a register: `width` bits from bit `shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    shift: u32,
    width: u32,
}

impl Bits {
    /// Creates the field of bits `low..=high`.
    #[must_use]
    pub const fn new(low: u32, high: u32) -> Self {
        assert!(low <= high && high < 32, "a field lies in bits 0..=31, low end first");
        Self { shift: low, width: high - low + 1 }
    }

    /// Returns a value in which the field's bits are set and all others clear.
    #[must_use]
    pub const fn mask(self) -> u32 {
        (u32::MAX >> (32 - self.width)) << self.shift
    }

    /// Extracts the field from a register value.
    #[must_use]
    pub const fn get(self, value: u32) -> u32 {
        (value & self.mask()) >> self.shift
    }

    /// Returns `value` with the field replaced; bits of `field` beyond its width are dropped.
    #[must_use]
    pub const fn set(self, value: u32, field: u32) -> u32 {
        (value & !self.mask()) | ((field << self.shift) & self.mask())
    }

    /// Returns whether any bit of the field is set.
    #[must_use]
    pub const fn is_set(self, value: u32) -> bool {
        value & self.mask() != 0
    }
}

/// The registers of one open device, accessed through map `M`.
///
/// Safe code writes registers only through [`Self::write`], and only those that the map's author has declared harmless,
/// on devices that the map covers. It cannot declare a register of a map, whether the map is its own or another's:
///
/// ```compile_fail,E0133
/// use device::{ReadWrite, Reg};
/// enum Map {}
/// const FORGED: Reg<Map, ReadWrite> = Reg::declared(device::MapPromise::given(), "RDBAL", 0x1000);
/// ```
///
/// ```compile_fail,E0133
/// use device::{ReadWrite, RegArray};
/// enum Map {}
/// const FORGED: RegArray<Map, ReadWrite> = RegArray::declared(device::MapPromise::given(), "RDBAL", 0x1000, 0x40, 64);
/// ```
///
/// ```compile_fail,E0451
/// use device::{ReadWrite, Reg};
/// enum Map {}
/// const FORGED: Reg<Map, ReadWrite> = Reg { offset: 0x1000, name: "RDBAL", map: std::marker::PhantomData };
/// ```
///
/// nor declare a map, by hand or by macro:
///
/// ```compile_fail,E0200
/// enum Map {}
/// impl device::RegisterMap for Map {
///     fn covers(_: device::PciIds) -> bool { true }
/// }
/// ```
///
/// ```compile_fail
/// #![forbid(unsafe_code)]
/// device::registers! {
///     pub map Map for |ids: PciIds| ids.vendor == 0x8086;
///     promise unsafe { device::MapPromise::given() };
///     FORGED @ 0x1000, rw, forged {};
/// }
/// ```
///
/// ```compile_fail,E0133
/// device::registers! {
///     pub map Map for |ids: PciIds| ids.vendor == 0x8086;
///     promise device::MapPromise::given();
///     FORGED @ 0x1000, rw, forged {};
/// }
/// ```
///
/// nor change the class of a register, or the kind of a class:
///
/// ```compile_fail,E0308
/// use device::{Dma, ReadWrite, Reg};
/// fn weaken<M>(register: Reg<M, Dma>) -> Reg<M, ReadWrite> { register }
/// ```
///
/// ```compile_fail,E0277
/// enum Mine {}
/// impl device::Access for Mine {}
/// ```
///
/// ```compile_fail,E0117
/// impl device::Writable for device::Dma {}
/// ```
///
/// nor use one map's register with another map, nor act as a device, nor write outside the types:
///
/// ```compile_fail,E0308
/// use device::{Device, ReadWrite, Reg, RegisterMap, Regs};
/// fn mix<A: RegisterMap, B: RegisterMap, D: Device>(regs: &Regs<A, D>, register: Reg<B, ReadWrite>) {
///     regs.write(register, 0);
/// }
/// ```
///
/// ```compile_fail,E0133
/// use device::{Bar as _, Device};
/// fn past<D: Device>(device: &D) { device.bar().write32(0x1000, 0) }
/// ```
///
/// ```compile_fail,E0133
/// let bar = device::MappedBar::new(std::ptr::NonNull::dangling(), 4096, std::sync::Arc::new(()));
/// ```
///
/// ```compile_fail,E0451
/// use device::{Device, Regs};
/// fn any<M, D: Device>(device: std::sync::Arc<D>) -> Regs<M, D> { Regs { device, map: std::marker::PhantomData } }
/// ```
pub struct Regs<M, D: Device> {
    device: Arc<D>,
    map: PhantomData<fn(M)>,
}

impl<M, D: Device> Clone for Regs<M, D> {
    fn clone(&self) -> Self {
        Self { device: Arc::clone(&self.device), map: PhantomData }
    }
}

impl<M, D: Device> fmt::Debug for Regs<M, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regs({})", self.device.name())
    }
}

impl<M: RegisterMap, D: Device> Regs<M, D> {
    /// Returns the registers of `device`, if the map covers it.
    ///
    /// # Errors
    ///
    /// If the map does not cover the device, for which its promise about harmless writes does not hold; or if the
    /// device has no registers in region 0.
    pub fn new(device: Arc<D>) -> Result<Self> {
        if !M::covers(device.ids()) {
            let cause = format!("no driver knows the registers of device {}", device.ids());
            return Err(Error::unusable(device.name(), cause, ""));
        }
        if device.bar().size() == 0 {
            let cause = "it has no base address region 0";
            return Err(Error::unusable(device.name(), cause, "is this the right device?"));
        }
        Ok(Self { device, map: PhantomData })
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// Reads a register.
    #[inline]
    #[must_use]
    pub fn read<A: Readable>(&self, register: Reg<M, A>) -> u32 {
        self.device.bar().read32(register.offset)
    }

    /// Reads all registers of the map once, in its order, as `listing` says for the offset of a line's first one. Those whose access
    /// class says that reading changes them are not read in any case.
    #[must_use]
    pub fn dump(&self, listing: impl Fn(u32) -> Listing) -> Vec<RegisterValue> {
        let mut values = Vec::new();
        for line in M::LINES {
            let is_read = match listing(line.offset) {
                Listing::Value => line.is_plain,
                Listing::NoValue => false,
                Listing::Absent => continue,
            };
            for index in 0..line.count {
                let offset = line.offset + line.stride * index;
                let name = if line.count > 1 { format!("{}[{index}]", line.name) } else { line.name.to_owned() };
                let value = is_read.then(|| self.device.bar().read32(offset));
                values.push(RegisterValue { name, offset, value });
            }
        }
        values
    }

    /// Writes a register by which the device cannot be led to memory that it was not given.
    #[inline]
    pub fn write<A: Writable>(&self, register: Reg<M, A>, value: u32) {
        // SAFETY: M covers this device (checked in `new`), and promises that registers which are not `Dma` are harmless.
        unsafe { self.device.bar().write32(register.offset, value) }
    }

    /// Reads a register, changes the value and writes it back.
    #[inline]
    pub fn modify<A: Readable + Writable>(&self, register: Reg<M, A>, change: impl FnOnce(u32) -> u32) {
        let value = self.read(register);
        self.write(register, change(value));
    }

    /// Writes a register through which the device learns about memory.
    ///
    /// # Safety
    ///
    /// That of [`crate::Bar::write32`]: all memory that the device can reach after this write must have been given to
    /// it.
    #[inline]
    pub unsafe fn write_dma(&self, register: Reg<M, Dma>, value: u32) {
        // SAFETY: promised by the caller.
        unsafe { self.device.bar().write32(register.offset, value) }
    }
}

/// Declares a register map: a type that names the map, and a constant for each register and bit field.
///
/// Each register has one line: name (with `[count; stride]` for an array), offset, access class (`ro`, `rw`, `wo`, `rc`
/// read-clears, `dma`), a module name, the fields with their bits, and the datasheet section in the doc comment. The
/// fields become [`Bits`] constants in that module.
///
/// The [`MapPromise`] promises what [`RegisterMap`] requires: every register that could make the device reach memory is
/// of class `dma`. Only unsafe code can make this promise.
///
/// ```
/// use device::{Bits, MapPromise, PciIds, registers};
///
/// registers! {
///     /// Registers of an imaginary device.
///     pub map Imaginary for |ids: PciIds| ids.vendor == 0x1234;
///     // SAFETY: the datasheet, section 1: the device learns addresses from RDBAL only.
///     promise unsafe { MapPromise::given() };
///
///     /// Control. Section 1.1.
///     CTRL @ 0x0000, rw, ctrl { RESET: 3, SPEED: 8..=9 };
///     /// Ring base address, low half, of each of 4 queues. Section 2.
///     RDBAL[4; 0x40] @ 0x1000, dma, rdbal {};
/// }
///
/// assert_eq!(CTRL.offset(), 0);
/// assert_eq!(RDBAL.at(3).offset(), 0x10C0);
/// assert_eq!(ctrl::SPEED.set(0, 2), 0x200);
/// assert_eq!(ctrl::RESET, Bits::new(3, 3));
/// ```
///
/// Safe code cannot write a `dma` register ([`Regs`] lists what else it cannot do):
///
/// ```compile_fail,E0277
/// # use device::{Device, MapPromise, PciIds, Regs, registers};
/// registers! {
///     /// Registers.
///     pub map Imaginary for |ids: PciIds| ids.vendor == 0x1234;
///     promise unsafe { MapPromise::given() };
///     /// Ring base.
///     RDBAL @ 0x1000, dma, rdbal {};
/// }
/// fn point_ring_anywhere<D: Device>(regs: &Regs<Imaginary, D>) {
///     regs.write(RDBAL, 0xdead_0000);
/// }
/// ```
#[macro_export]
macro_rules! registers {
    (
        $(#[$map_doc:meta])*
        $vis:vis map $map:ident for |$ids:ident: PciIds| $covers:expr;
        promise $promise:expr;
        $(
            $(#[$doc:meta])*
            $name:ident $([$count:literal; $stride:literal])? @ $base:literal, $access:ident, $module:ident {
                $($field:ident: $low:literal $(..=$high:literal)?),* $(,)?
            };
        )*
    ) => {
        $(#[$map_doc])*
        #[derive(Clone, Copy, Debug)]
        $vis enum $map {}
        // Takes unsafe code of the crate that declares the map, here and for each register: `unsafe` in this macro would be
        // allowed to a crate that forbids unsafe code, in an arm that can be called alone above all.
        #[allow(clippy::undocumented_unsafe_blocks, reason = "clippy does not see a comment that a macro was given")]
        const _: $crate::MapPromise<$map> = $promise;
        // SAFETY: the promise above.
        unsafe impl $crate::RegisterMap for $map {
            const LINES: &'static [$crate::RegisterLine] = &[$($crate::RegisterLine::new(
                stringify!($name),
                $base,
                $crate::registers!(@shape $($count, $stride)?),
                $crate::registers!(@plain $access),
            )),*];

            fn covers($ids: $crate::PciIds) -> bool { $covers }
        }
        $(
            $(#[$doc])*
            #[allow(clippy::undocumented_unsafe_blocks, reason = "as above")]
            $vis const $name: $crate::registers!(@type $map $access $($count)?) =
                $crate::registers!(@value $promise; $name $base $(, $stride, $count)?);
            #[doc = concat!("Fields of ", stringify!($name), ".")]
            #[allow(dead_code, missing_docs, reason = "a map names fields that a driver may not use")]
            $vis mod $module {
                $(pub const $field: $crate::Bits = $crate::registers!(@bits $low $(, $high)?);)*
            }
        )*
    };
    (@type $map:ident $access:ident) => { $crate::Reg<$map, $crate::registers!(@access $access)> };
    (@type $map:ident $access:ident $count:literal) => { $crate::RegArray<$map, $crate::registers!(@access $access)> };
    (@value $promise:expr; $name:ident $base:literal) => {
        $crate::Reg::declared($promise, stringify!($name), $base)
    };
    (@value $promise:expr; $name:ident $base:literal, $stride:literal, $count:literal) => {
        $crate::RegArray::declared($promise, stringify!($name), $base, $stride, $count)
    };
    (@bits $bit:literal) => { $crate::Bits::new($bit, $bit) };
    (@bits $low:literal, $high:literal) => { $crate::Bits::new($low, $high) };
    (@shape) => { (0, 1) };
    (@shape $count:literal, $stride:literal) => { ($stride, $count) };
    (@plain rc) => { false };
    (@plain wo) => { false };
    (@plain $access:ident) => { true };
    (@access ro) => { $crate::ReadOnly };
    (@access rw) => { $crate::ReadWrite };
    (@access wo) => { $crate::WriteOnly };
    (@access rc) => { $crate::ReadClears };
    (@access dma) => { $crate::Dma };
}
