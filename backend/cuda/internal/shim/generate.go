//go:build cuda && linux

package shim

//go:generate go -C ../../../../tools run ./shim -list ../backend/cuda/internal/shim/symbols.txt -out ../backend/cuda/internal/shim
