module github.com/lorafuse/lorafuse/scripts/bench_load/gopeer

go 1.26

require github.com/maruel/safetensors v1.2.0

require (
	github.com/edsrzf/mmap-go v1.2.0 // indirect
	golang.org/x/sys v0.27.0 // indirect
)
