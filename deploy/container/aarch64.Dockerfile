# The container in which cross builds for a Pi: Debian 12 with its cross compiler. cross brings the
# Rust toolchain of the host into it.
FROM debian:bookworm-slim
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        ca-certificates gcc libc6-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static \
    && rm -rf /var/lib/apt/lists/*
ENV CROSS_TOOLCHAIN_PREFIX=aarch64-linux-gnu- \
    CROSS_SYSROOT=/usr/aarch64-linux-gnu \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" \
    CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
    AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar
