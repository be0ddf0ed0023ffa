package tensor

import "math"

// F4ToFloat32 widens a float of 2 exponent bits and 1 mantissa bit, the lower
// four bits of h: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
// Format: E2M1 in OCP Microscaling Formats (MX) 1.0, section 5.3.3.
func F4ToFloat32(h uint8) float32 { return f4[h&15] }

// Float32ToF4 rounds to the nearest F4 number, ties to even. The format has
// neither infinities nor NaN: what is too large becomes 6 with its sign, NaN
// becomes 6, as NVIDIA's instructions do it.
func Float32ToF4(f float32) uint8 {
	b := math.Float32bits(f)
	return signed(b, min(encode(b&0x7fffffff, 1, 1), 7), 8)
}

// F6E2M3ToFloat32 widens a float of 2 exponent and 3 mantissa bits, the lower
// six bits of h; largest number 7.5.
// Format: OCP Microscaling Formats (MX) 1.0, section 5.3.2.
func F6E2M3ToFloat32(h uint8) float32 { return f6e2m3[h&63] }

// Float32ToF6E2M3 rounds to the nearest F6_E2M3 number, ties to even. What is
// too large becomes 7.5 with its sign, NaN becomes 7.5.
func Float32ToF6E2M3(f float32) uint8 {
	b := math.Float32bits(f)
	return signed(b, min(encode(b&0x7fffffff, 3, 1), 31), 32)
}

// F6E3M2ToFloat32 widens a float of 3 exponent and 2 mantissa bits, the lower
// six bits of h; largest number 28.
// Format: as for F6E2M3ToFloat32.
func F6E3M2ToFloat32(h uint8) float32 { return f6e3m2[h&63] }

// Float32ToF6E3M2 rounds to the nearest F6_E3M2 number, ties to even. What is
// too large becomes 28 with its sign, NaN becomes 28.
func Float32ToF6E3M2(f float32) uint8 {
	b := math.Float32bits(f)
	return signed(b, min(encode(b&0x7fffffff, 2, 3), 31), 32)
}

// signed adds the sign of b to the code of its magnitude, but not to that of
// NaN.
func signed(b, code, sign uint32) uint8 {
	if b>>31 == 0 || b&0x7fffffff > infinity {
		return uint8(code)
	}
	return uint8(code | sign)
}

var f4 = func() (t [16]float32) {
	for h := range t {
		t[h] = decode(uint32(h), 4, 1, 1)
	}
	return t
}()

var f6e2m3, f6e3m2 = func() (t, u [64]float32) {
	for h := range t {
		t[h], u[h] = decode(uint32(h), 6, 3, 1), decode(uint32(h), 6, 2, 3)
	}
	return t, u
}()

// pairs4 has the two numbers in every byte of F4.
var pairs4 = func() (t [256][2]float32) {
	for b := range t {
		t[b] = [2]float32{f4[b&15], f4[b>>4]}
	}
	return t
}()

// unpack4 widens the two numbers in each byte. The safetensors format leaves
// the order open; it is that of PyTorch's float4_e2m1fn_x2.
func unpack4(dst []float32, src []byte) {
	for _, b := range src {
		*(*[2]float32)(dst) = pairs4[b]
		dst = dst[2:]
	}
}

func pack4(dst []byte, src []float32) {
	for i := range dst {
		dst[i] = Float32ToF4(src[2*i]) | Float32ToF4(src[2*i+1])<<4
	}
}

// unpack6 widens the four numbers in three bytes. Neither the safetensors
// format nor MX orders the bits: this is the order of ONNX, and that of F4.
func unpack6(dst []float32, src []byte, table *[64]float32) {
	for len(src) >= 3 && len(dst) >= 4 {
		bits := uint32(src[0]) | uint32(src[1])<<8 | uint32(src[2])<<16
		dst[0], dst[1], dst[2], dst[3] = table[bits&63], table[bits>>6&63], table[bits>>12&63], table[bits>>18]
		dst, src = dst[4:], src[3:]
	}
}

func pack6(dst []byte, src []float32, narrow func(float32) uint8) {
	for len(src) >= 4 && len(dst) >= 3 {
		bits := uint32(narrow(src[0])) | uint32(narrow(src[1]))<<6 | uint32(narrow(src[2]))<<12 | uint32(narrow(src[3]))<<18
		dst[0], dst[1], dst[2] = byte(bits), byte(bits>>8), byte(bits>>16)
		dst, src = dst[3:], src[4:]
	}
}
