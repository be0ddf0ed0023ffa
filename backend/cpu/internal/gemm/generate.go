package gemm

//go:generate go -C ../../../../tools run ./asm/gemm -out ../backend/cpu/internal/gemm/kernels_amd64.s -stubs ../backend/cpu/internal/gemm/stubs_amd64.go -pkg gemm
//go:generate go -C ../../../../tools run ./asm/gemm -part outer -out ../backend/cpu/internal/gemm/kernels_outer_amd64.s -stubs ../backend/cpu/internal/gemm/stubs_outer_amd64.go -pkg gemm
//go:generate go -C ../../../../tools run ./asm/gemm -part amx -out ../backend/cpu/internal/gemm/kernels_amx_amd64.s -stubs ../backend/cpu/internal/gemm/stubs_amx_amd64.go -pkg gemm
//go:generate go -C ../../../../tools run ./asm/neon/gemm -out ../backend/cpu/internal/gemm/kernels_arm64.s -stubs ../backend/cpu/internal/gemm/stubs_arm64.go -pkg gemm
