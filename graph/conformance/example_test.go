package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/graph/conformance"
)

// Support lists the composites that a device runs itself, judged by the cases of the suite.
func ExampleSupport() {
	table := conformance.Support(&testing.T{}, []string{backend.Null}, []backend.Device{&null.Device{}})
	for _, line := range strings.Split(table, "\n")[:4] {
		fmt.Println(line)
	}
	// Output:
	// | composite | null |
	// |---|---|
	// | RMSNorm | yes |
	// | RMSNormGrad | yes |
}
