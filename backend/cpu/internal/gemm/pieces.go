package gemm

// pieceCount is how many bfloat16 a float32 is the sum of: of eight bits of its significand
// each. Tiles of AMX multiply bfloat16 and add in float32, so that the products of
// pieces are exact, and three of them (where B is bfloat16) or six (where it is taken
// apart too) are a product of float32: see manyRows.
const pieceCount = 3
