//go:build !cuda

package main

import (
	"errors"

	_ "github.com/lorafuse/lorafuse/backend/all" // to be tried without CUDA
)

func values([]string) error { return errors.New("this build has no CUDA") }
