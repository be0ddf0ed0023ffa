// Package gemm multiplies matrices on the CPU: the sum of products
//
//	C = (C +) bias + Σᵢ αᵢ·op(Aᵢ)·op(Bᵢ)
//
// where the K loop goes on from one product into the next. A linear layer
// with a LoRA adapter is two pairs, {x, Wᵀ} and {h, s·Bᵀ}: the adapter adds no
// pass over the result.
//
// # Storage and arithmetic
//
// A and B lie in memory as float32, float16 or bfloat16, in either order;
// weights of a checkpoint are used where they are mapped. 16-bit elements are
// widened exactly; products and sums are float32. C is float32. With
// [Engine.SetPrecision] large products may round their operands to bfloat16,
// which machines with AVX512_BF16 multiply twice as fast, those with
// FEAT_BF16 of arm64 too, and those with AMX sixteen times.
//
// AMX also multiplies what is not rounded, where two rows or more meet weights of bfloat16,
// and 25 to 48 or more meet others: a float32 is the sum of three bfloat16, and
// the products of these are exact in float32. Of the nine products of two float32 the
// three least are left out, together some half of its last bit.
// Only what is next to nothing is taken for nothing there: weights of bfloat16, and
// results of a product, below 2⁻¹²⁶.
//
// On AMX an adapter costs little more than reading x once again for h = x·Aᵀ, and
// [Engine.RunAfter] saves that too: it makes h of the panels that x·Wᵀ packs.
//
// A [Filter], such as dropout, changes elements of A, B or C while they are in
// cache; see [Engine.Filters].
//
// # Ways
//
// One table of routes decides how a call is computed; [Explain] says which way it takes and
// why, on any instruction set, and docs/gemm.md has the table and a picture of it. The
// ways and their limits are frozen.
//
// # Order of summation
//
// Every element of C is summed in one order that depends on the call and on
// the instruction set, not on the number of workers: the result is the same
// bit for bit.
//
// A row does not depend on the other rows either, as long as their number chooses the same
// way. These are the numbers at which ways change:
//   - from 1 row (decoding) to 2, and from 8 to 9;
//   - where every B is transposed, as in x·Wᵀ, and long enough, up to 64 rows go the way of
//     8, by instruction set and precision; so do up to 32 where no operand is transposed and
//     C has at most 64 columns;
//   - with AMX, weights of bfloat16 go other ways from 9, 33 and, rounded or not, 65 or 128
//     rows on; other weights from 25, 48 and 128; products of at most 64 columns from 64;
//   - products with a transposed A, whose rows are no batch, change above 32 rows, rounded
//     ones with AMX above 8, and those of at most 64 columns above 128 once more.
//
// Sums run over at most 1024 terms before they are added up, so that long ones
// lose no accuracy; those of operands that are rounded, in tiles, go on.
//
// In the mode of [Engine.SetInvariant], or of a call with Invariant, a row does not depend on
// their number either, bit for bit: rows go one way, a block of 8 to 64 of them at a time, and
// a single row goes no way of its own. On AVX2 one to 64 rows of x·Wᵀ take 0.96 to 1.2 times
// as long by that; 512 rows, which would be multiplied by tiles, 1.4 to 2 times; 64 rows of
// nf4 1.6 times (BenchmarkInvariant prints it). Calls with a transposed A are as ever.
//
// NaN and infinities propagate as in float32 arithmetic, except that a pair
// with Alpha 0 is not read at all.
package gemm
