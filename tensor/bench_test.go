package tensor

import (
	"fmt"
	"testing"
	"unsafe"
)

// Benchmarks report the bytes read and written, beside those of a copy: of
// arrays that fit the second-level cache, and of arrays that fit none.
func BenchmarkConvert(b *testing.B) {
	wide, other, slim := pages(benchElements*4), pages(benchElements*8), pages(benchElements*8)
	values := asFloats(wide)
	for _, n := range []int{1 << 14, benchElements} {
		b.Run(fmt.Sprintf("copy/%d", n), func(b *testing.B) {
			b.SetBytes(int64(8 * n))
			for b.Loop() {
				copy(wide[:4*n], other)
			}
		})
		for _, d := range numbers {
			if d == F32 {
				continue
			}
			for i := range values {
				values[i] = float32(i%2048)/1024 - 1
			}
			raw := slim[:bytesFor(n, d)]
			if err := FromFloat32(raw, values[:n], d); err != nil {
				b.Fatal(err)
			}
			for _, s := range available() {
				run := func(name string, f func() error) {
					b.Run(fmt.Sprintf("%s/%v/%d/%v", name, d, n, s), func(b *testing.B) {
						chosen := active
						active = s
						defer func() { active = chosen }()
						b.SetBytes(int64(4*n + len(raw)))
						for b.Loop() {
							if err := f(); err != nil {
								b.Fatal(err)
							}
						}
					})
				}
				run("to", func() error { return ToFloat32(values[:n], raw, d) })
				run("from", func() error { return FromFloat32(raw, values[:n], d) })
			}
		}
		for _, c := range [][2]DType{{BF16, F16}, {F16, BF16}, {F8E4M3, BF16}, {BF16, F8E4M3}, {F64, BF16}, {I64, I32}} {
			src, dst := slim[:bytesFor(n, c[0])], other[:bytesFor(n, c[1])]
			b.Run(fmt.Sprintf("%v-%v/%d", c[0], c[1], n), func(b *testing.B) {
				b.SetBytes(int64(len(src) + len(dst)))
				for b.Loop() {
					if err := Convert(dst, c[1], src, c[0]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

const benchElements = 1 << 24 // 64 MiB of float32

// pages are n bytes from the start of a page, touched.
func pages(n int) []byte {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, n/8)))), n)
	for i := range b {
		b[i] = 1
	}
	return b
}
