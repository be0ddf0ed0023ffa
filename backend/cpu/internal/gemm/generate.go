package gemm

//go:generate go -C ../../../../tools run ./asm/gemm -out ../backend/cpu/internal/gemm/kernels_amd64.s -stubs ../backend/cpu/internal/gemm/stubs_amd64.go -pkg gemm
