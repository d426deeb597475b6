# `just` lists the tasks.
_list:
    @just --list --unsorted

# Ten seconds of forwarding between two software NICs.
demo:
    cargo run --release --bin fwd

# All tests, as the README says.
test:
    cargo test --workspace

# Formatting and lints; warnings are errors.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Documentation; warnings are errors.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Route tables against an oracle, and readers beside a writer, for longer than `just test` has them.
lpm SECONDS="60":
    RINGWAY_LPM_SECONDS={{SECONDS}} cargo test --release -p ringway-lpm --test differential --test concurrent -- --test-threads 8

# Pool, driver rings and the strict model under Miri (nightly).
miri:
    tests/miri

# Threads of pool and lookup under ThreadSanitizer (nightly).
tsan:
    tests/tsan

# Two network namespaces with `fwd l2` between them (root).
netns:
    cargo test -p tests --test netns -- --nocapture

# Guests in QEMU: Linux's and DPDK's drivers on software 82599s, ours behind VFIO and an IOMMU (root).
vm *SCENARIOS="all":
    tests/vm/run {{SCENARIOS}}

# Cycles per packet.
bench *ARGS:
    cargo bench -p benches {{ARGS}}

# Experiments of the documents beside their figures, with a page (target/experiments/index.html).
experiments *ARGS:
    cargo run --release --bin pktgen -- bench --out target/experiments --html target/experiments/index.html {{ARGS}}

# The page of stored experiments, or another, as Chromium shows it: light, dark and on paper (target/pages; Chromium).
pages FILE="benches/experiments/index.html":
    #!/bin/sh
    set -eu
    browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo "no Chromium is installed" >&2; exit 1; }
    mkdir -p target/pages
    page="file://$(realpath {{quote(FILE)}})"
    show() { "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars "$@" "$page"; }
    # Chromium draws no more than 16,384 rows.
    show --blink-settings=preferredColorScheme=1 --window-size=1200,16000 --screenshot=target/pages/light.png
    show --blink-settings=preferredColorScheme=0 --window-size=1200,16000 --screenshot=target/pages/dark.png
    show --no-pdf-header-footer --print-to-pdf=target/pages/print.pdf

# Instructions per packet, counted by callgrind: of drivers and router, and of frames that are generated.
instr:
    cargo run --release -p benches --bin instr
    cargo bench -p ringway-stream --bench instructions

# Each fuzz target for some seconds (cargo-fuzz, nightly).
fuzz SECONDS="300" *TARGETS:
    fuzz/run {{SECONDS}} {{TARGETS}}

# What safe code could break once, tried again, one line each.
adversary *ARGS:
    tests/adversary/run {{ARGS}}

# Every command of the README, in a clone of its own.
readme *ARGS:
    tests/readme {{ARGS}}

# Ringway and DPDK side by side (fetches DPDK from Debian's packages).
rival:
    benches/rival/run

# Route lookup beside DPDK's and other crates' (DPDK from Debian's packages).
rival-lpm *ARGS:
    benches/lpm/run {{ARGS}}

# virtio-user of Ringway and of DPDK at DPDK's vhost back end (two cores).
virtio-user *ARGS:
    benches/virtio-user/run {{ARGS}}

# Latency of forwarding and routing at small loads (two cores).
latency *ARGS:
    benches/latency/run {{ARGS}}

# `fwd l3` and DPDK's l3fwd, in turn, on vhost-user ports (two cores; DPDK from Debian's packages).
l3fwd *ARGS:
    benches/l3fwd/run {{ARGS}}

# `pktgen` beside DPDK's testpmd, its rates and gaps, and latencies that are known (two cores; DPDK from Debian's packages).
pktgen *ARGS:
    benches/pktgen/run {{ARGS}}

# What `pktgen rfc2544` finds of a wire with knobs, of `tbf` and of nftables, beside what is true (two cores; root for the last two).
rfc2544 *ROWS:
    benches/rfc2544/run {{ROWS}}

# What `fwd l3 --kernel` costs and how fast it follows the kernel, beside its bounds (root).
kernel *ROWS:
    benches/kernel/run {{ROWS}}

# Licences, advisories and sources of all dependencies (cargo-deny).
deny:
    cargo deny --all-features check

# Packages of all crates and programs, built from what they hold; nothing is uploaded.
packages *ARGS:
    tests/packages {{ARGS}}

# What the larger tests need: packages, toolchains, cargo-fuzz, cargo-deny.
setup *ARGS:
    tests/setup {{ARGS}}

# Everything that has to pass, or some steps of it (`.ci/run list`).
ci *STEPS:
    .ci/run {{STEPS}}
