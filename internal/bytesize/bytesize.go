// Package bytesize writes numbers of bytes for people. What people write is read by
// safetensors.ParseSize, which stands without this module.
package bytesize

import (
	"fmt"
	"math"
)

// Binary writes n in powers of 1024, as memory is counted: "1.5 MiB", "2.00 GiB".
func Binary(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

// Decimal writes n in powers of 1000, as disks and networks are counted, with at
// most three digits of which one may be a decimal: "999 B", "1.5 MB".
func Decimal(n float64) string {
	unit, name := Unit(n)
	return Short(n/unit) + " " + name
}

// Unit is the power of 1000 that Decimal writes n in, and its name.
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

// Short is a number with at most three digits of which one may be a decimal.
func Short(x float64) string {
	if x < 100 && x != math.Trunc(x) {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
