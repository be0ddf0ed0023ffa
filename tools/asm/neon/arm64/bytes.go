package arm64

// FromInt converts integers of 32 bits to float32.
func (f *Func) FromInt(d, n V) { f.two(0x4e21d800, "scvtf", "4s", "4s", d, n) }

// SignBytes sign-extends the lower 8 bytes of n to 16 bits, SignBytes2 the upper; SignHalves and SignHalves2 extend 16
// bits to 32.
func (f *Func) SignBytes(d, n V) {
	f.Word(0x0f08a400, []V{d, n}, fieldsDN, "sshll v%v.8h, v%v.8b, #0", d, n)
}
func (f *Func) SignBytes2(d, n V) {
	f.Word(0x4f08a400, []V{d, n}, fieldsDN, "sshll2 v%v.8h, v%v.16b, #0", d, n)
}
func (f *Func) SignHalves(d, n V) {
	f.Word(0x0f10a400, []V{d, n}, fieldsDN, "sshll v%v.4s, v%v.4h, #0", d, n)
}
func (f *Func) SignHalves2(d, n V) {
	f.Word(0x4f10a400, []V{d, n}, fieldsDN, "sshll2 v%v.4s, v%v.8h, #0", d, n)
}

// Bytes sets all 16 lanes to one byte; UpperNibbles extracts the upper halves of bytes.
func (f *Func) Bytes(d V, b byte) {
	f.Word(0x4f00e400|uint32(b>>5)<<16|uint32(b&31)<<5, []V{d}, []uint{0}, "movi v%v.16b, #%d", d, b)
}
func (f *Func) UpperNibbles(d, n V) {
	f.Word(0x6f0c0400, []V{d, n}, fieldsDN, "ushr v%v.16b, v%v.16b, #4", d, n)
}

// Lookup looks up the bytes m in the table n.
func (f *Func) Lookup(d, n, m V) {
	f.Word(0x4e000000, []V{d, n, m}, fieldsDNM, "tbl v%v.16b, { v%v.16b }, v%v.16b", d, n, m)
}

// ZipBytes interleaves the lower bytes of n and m, ZipBytes2 the upper; ZipHalves and ZipHalves2 interleave 16-bit
// elements.
func (f *Func) ZipBytes(d, n, m V)   { f.three(0x4e003800, "zip1", b16, d, n, m) }
func (f *Func) ZipBytes2(d, n, m V)  { f.three(0x4e007800, "zip2", b16, d, n, m) }
func (f *Func) ZipHalves(d, n, m V)  { f.three(0x4e403800, "zip1", h8, d, n, m) }
func (f *Func) ZipHalves2(d, n, m V) { f.three(0x4e407800, "zip2", h8, d, n, m) }
