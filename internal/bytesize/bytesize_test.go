package bytesize_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/internal/bytesize"
)

func TestBinary(t *testing.T) {
	for n, want := range map[int64]string{0: "0.0 KiB", 100: "0.1 KiB", 200 << 10: "200.0 KiB", 1<<20 - 1: "1024.0 KiB", 3 << 19: "1.5 MiB", 1<<30 - 1: "1024.0 MiB", 1 << 31: "2.00 GiB", 1 << 43: "8192.00 GiB"} {
		assert.Equal(t, want, bytesize.Binary(n))
	}
}

func TestDecimal(t *testing.T) {
	for n, want := range map[float64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 1.5e6: "1.5 MB", 1.5e11: "150 GB", 2.5e15: "2500 TB"} {
		assert.Equal(t, want, bytesize.Decimal(n))
	}
}

func Example() {
	fmt.Println(bytesize.Binary(3<<29), bytesize.Decimal(12e6))
	// Output: 1.50 GiB 12 MB
}
