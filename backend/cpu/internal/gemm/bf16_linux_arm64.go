//go:build !purego

package gemm

import "golang.org/x/sys/unix"

// findBF16 reads the CPU features that the kernel reports to the process.
func findBF16() bool {
	const (
		hwcap2     = 26      // AT_HWCAP2
		hwcap2BF16 = 1 << 14 // HWCAP2_BF16
	)
	aux, err := unix.Auxv()
	if err != nil {
		return false
	}
	for _, entry := range aux {
		if entry[0] == hwcap2 {
			return entry[1]&hwcap2BF16 != 0
		}
	}
	return false
}
