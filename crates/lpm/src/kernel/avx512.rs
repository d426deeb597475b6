//! What the assembly of both families shares.
//!
//! Assembly, because all that is read is atomic: to the compiler each function is as many relaxed loads. x86 keeps
//! loads in order, so what a function reads is not older than what one before it has read. Registers are named
//! because their class is not open to functions that are compiled for lesser CPUs.
//!
//! A mask of ones is `kxnorw k1, k0, k0`: a CPU waits for what it reads, though the result is the same, and nothing writes `k0`.

/// Proof that the CPU was asked for AVX-512 F, VL and VPOPCNTDQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The functions that take this are compiled for POPCNT, BMI1, BMI2 and AVX2 too: keep it beside [`super::Avx2`].
    pub(super) fn detect() -> Option<Self> {
        (std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512vpopcntdq"))
        .then_some(Self(()))
    }
}

/// Starts with a cache line. What is written as a whole register and read back takes twice as long if it lies across two, as it
/// would on some stacks.
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);
