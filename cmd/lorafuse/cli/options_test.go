package cli

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// TestMachineFlags: what a command says of its machine is what the machine is
// opened with.
func TestMachineFlags(t *testing.T) {
	var opened backend.Options
	seen := errors.New("seen")
	backend.Register("spy", backend.Driver{Rank: -1, Devices: func() ([]backend.Info, error) { return nil, seen }, Open: func(o backend.Options) (backend.Device, error) {
		opened = o
		return nil, seen
	}})
	for _, call := range [][]string{
		{"generate", "--model", llama, "--prompt", "x"}, {"embed", "--model", llama}, {"eval", "--model", llama, "--data", "x.jsonl"},
	} {
		opened = backend.Options{}
		r := command(t, "", append(call, "--backend", "spy", "--batch-invariant", "--precision", "bf16", "--load", "plain", "--threads", "3")...)
		require.Equal(t, ExitUsage, r.status, r.stderr)
		require.Contains(t, r.stderr, "seen")
		assert.Equal(t, backend.Options{BatchInvariant: true, Precision: backend.BF16, Load: backend.LoadPlain, Threads: 3}, opened, call[0])
	}
	r := command(t, "", "eval", "--model", llama, "--data", "x.jsonl", "--backend", "spy")
	require.Equal(t, ExitUsage, r.status)
	assert.Equal(t, backend.Options{}, opened, "auto precision is what the backend is best at")
}
