// Package gemm implements matrix multiplication on the CPU. A call computes a sum of matrix products
//
//	C = (C +) bias + Σᵢ αᵢ·op(Aᵢ)·op(Bᵢ)
//
// in one K loop that runs over all pairs. A linear layer with a LoRA adapter is two pairs, {x, Wᵀ} and {h, s·Bᵀ}: the
// adapter needs no second pass over the result.
//
// # Storage and arithmetic
//
// A and B are float32, float16 or bfloat16, in either order; checkpoint weights are used in place in mapped files.
// 16-bit elements are widened exactly; products and sums are float32. C is float32. With [Engine.SetPrecision] large
// calls may round their operands to bfloat16. Machines with AVX512_BF16 multiply these twice as fast,
// and machines with AMX sixteen times as fast.
//
// AMX also multiplies operands that are not rounded, from two rows on if the weights are bfloat16, otherwise from 25
// to 48 or more rows on: a float32 is split into three bfloat16, whose products are exact in float32. The three
// smallest of the nine products of two float32 are omitted; together they are about half of the last bit. Only
// subnormal bfloat16 weights, and results of a product below 2⁻¹²⁶, count as zero there.
//
// On AMX an adapter costs little more than reading x once again for h = x·Aᵀ. [Engine.RunAfter] avoids that too: it
// computes h from the panels that x·Wᵀ packs.
//
// A [Filter], such as dropout, changes elements of A, B or C while they are in cache; see [Engine.Filters].
//
// # Ways
//
// A table of routes selects the algorithm, or way, of a call. Explain, a function of its tests, returns the selected
// way and the reason for any instruction set; docs/gemm.md has the table and a picture of it. The ways and their limits
// are frozen.
//
// # Order of summation
//
// Every element of C is summed in an order that depends on the call and on the instruction set, not on the number of
// workers: results are bit-equal.
//
// A row does not depend on the other rows either, as long as their number selects the same way. Ways change at these
// numbers:
//   - from 1 row (decoding) to 2, and from 8 to 9;
//   - if every B is transposed, as in x·Wᵀ, and long enough, up to 64 rows use the way of
//     8, by instruction set and precision; so do up to 32 if no operand is transposed and
//     C has at most 64 columns;
//   - with AMX, weights of bfloat16 change ways at 9, 33 and, rounded or not, 65 or 128
//     rows; other weights at 25, 48 and 128; calls of at most 64 columns at 64;
//   - calls with a transposed A, whose rows are no batch, change above 32 rows, rounded
//     ones with AMX above 8, and calls of at most 64 columns again above 128.
//
// Sums have at most 1024 terms before they are added up, so long sums lose no accuracy; tile sums of rounded operands
// are not split.
//
// With [Engine.SetInvariant], or Invariant in a call, a row does not depend on the number of rows either, bit for
// bit: all rows use one way, in blocks of 8 to 64 rows, and a single row has no way of its own. On AVX2 one to 64
// rows of x·Wᵀ then take 0.96 to 1.2 times as long; 512 rows, which otherwise use tiles, 1.4 to 2 times; 64 rows of
// nf4 1.6 times (BenchmarkInvariant prints it). Calls with a transposed A do not change.
//
// NaN and infinities propagate as in float32 arithmetic, except that a pair with Alpha 0 is not read at all.
package gemm
