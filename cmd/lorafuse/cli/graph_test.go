package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A chain of products and a scale that is written by hand is a sum of two products on
// every machine, the adapter a longer axis of it.
func TestGraphDumpChain(t *testing.T) {
	d := decode[dump](t, succeed(t, "graph", "dump", "--chain", "8,64,32,8", "--json"))
	require.Len(t, d.Launches, 2, d.Program)
	require.Contains(t, d.Launches[1], "Gemm{NT NT·2}")
	require.Contains(t, succeed(t, "graph", "dump", "--chain", "8,64,32,8"), d.Program)
}

// With an adapter a layer has its products in the sum, and the program of a model says
// for how many tokens it is.
func TestGraphDumpModel(t *testing.T) {
	out := succeed(t, "graph", "dump", "--model", llama, "--adapter", llamaLoRA, "--tokens", "40")
	require.Contains(t, out, "tokens ≤ 40")
	require.Contains(t, out, "slot.0/")
	require.Regexp(t, `Gemm\{NT NT·\d`, out)
}
