package safetensors

import "golang.org/x/sys/unix"

const adviceHugePages = unix.MADV_HUGEPAGE
