// Package bytesize formats numbers of bytes for people. Its inverse is
// safetensors.ParseSize, in a package without dependencies on this module.
package bytesize

import (
	"fmt"
	"math"
)

// Binary formats n in powers of 1024, as is usual for memory: "1.5 MiB", "2.00
// GiB".
func Binary(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

// Decimal formats n in powers of 1000, as is usual for disks and networks, with
// at most three digits, one of them a decimal: "999 B", "1.5 MB".
func Decimal(n float64) string {
	unit, name := Unit(n)
	return Short(n/unit) + " " + name
}

// Unit returns the power of 1000 that Decimal uses for n, and its name.
func Unit(n float64) (unit float64, name string) {
	unit = 1
	for _, name := range []string{"B", "kB", "MB", "GB"} {
		if n < 1000*unit {
			return unit, name
		}
		unit *= 1000
	}
	return unit, "TB"
}

// Short formats a number with at most three digits, one of them a decimal.
func Short(x float64) string {
	if x < 100 && x != math.Trunc(x) {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
