package vec

//go:generate go run -C ../../tools ./asm/vec -out ../internal/vec/kernels_amd64.s -stubs ../internal/vec/stubs_amd64.go -pkg vec
//go:generate go run -C ../../tools ./asm/neon/vec -out ../internal/vec/kernels_arm64.s -stubs ../internal/vec/stubs_arm64.go -pkg vec
