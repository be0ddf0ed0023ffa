//go:build !cuda

package main

import (
	"fmt"
	"os"

	_ "github.com/lorafuse/lorafuse/backend/all" // to be tried without CUDA
)

func values([]string) bool {
	fmt.Fprintln(os.Stderr, "gpubench: this build has no CUDA")
	return false
}
