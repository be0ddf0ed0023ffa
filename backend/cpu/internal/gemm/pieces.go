package gemm

// pieceCount is the number of bfloat16 that a float32 is split into, each with eight bits of its significand. AMX
// tiles multiply bfloat16 and add in float32, so the products of pieces are exact; three of them (if B is bfloat16)
// or six (if B is split too) make a float32 product: see manyRows.
const pieceCount = 3
