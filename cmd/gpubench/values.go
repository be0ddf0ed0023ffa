//go:build cuda

package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/graph/conformance"
)

// values runs the conformance suite on the GPU like go test, with flags such as
// -test.run, and exits. A separate test binary would be a third of the pack.
func values(args []string) error {
	os.Args = append(os.Args[:1:1], args...)
	open := func(p backend.Precision, used *[]*cuda.Device) conformance.Open {
		return func() (backend.Device, error) {
			dev, err := cuda.Open(backend.Options{Precision: p})
			if err == nil {
				*used = append(*used, dev)
			}
			return dev, err
		}
	}
	test := func(p backend.Precision, run func(*testing.T, conformance.Open)) func(*testing.T) {
		return func(t *testing.T) {
			var used []*cuda.Device
			run(t, open(p, &used))
			for _, dev := range used {
				t.Log("kernels:", dev.Kernels()) // what a sanitizer has watched
			}
		}
	}
	testing.Main(regexp.MatchString, []testing.InternalTest{
		{Name: "TestConformance", F: test(backend.F32, func(t *testing.T, open conformance.Open) { conformance.RunAll(t, open) })},
		{Name: "TestRounded", F: test(backend.BF16, conformance.RunRounded)},
		{Name: "TestLarge", F: test(backend.BF16, conformance.RunLarge)},
	}, nil, nil)
	return nil
}
