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
// widened exactly; products and sums are float32. C is float32.
//
// # Order of summation
//
// Every element of C is summed in one order that depends on the shapes of the
// call and on the instruction set, not on the number of workers: the result
// is the same bit for bit. Rows are independent as well: for a given N and
// given pairs, the order for one row depends on M only by way of the kernel
// chosen (see path), so a row does not change with what else is in a large
// batch.
//
// NaN and infinities propagate as in float32 arithmetic, except that a pair
// with Alpha 0 is not read at all.
package gemm
