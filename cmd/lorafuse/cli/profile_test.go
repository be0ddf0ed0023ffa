package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// readProfile reads ops.json and requires that the other files are there.
func readProfile(t *testing.T, dir string) profileReport {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, opsJSON))
	require.NoError(t, err)
	var r profileReport
	require.NoError(t, json.Unmarshal(text, &r))
	for _, name := range []string{opsTable, cpuProfile} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Positive(t, info.Size(), name)
	}
	return r
}

func TestProfileOfTraining(t *testing.T) {
	l := newLab(t)
	r := command(t, "", "train", l.settings(llama, "precision: bf16\n"), "--profile", l.path("profile"))
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Contains(t, r.stderr, "profile  ")
	p := readProfile(t, l.path("profile"))
	assert.Equal(t, backend.CPU, p.Device.Backend)
	assert.Positive(t, p.Peak.FlopsPerSecond)
	assert.Positive(t, p.Peak.BytesPerSecond)
	share, calls := 0.0, map[string]int{}
	for i, o := range p.Ops {
		share += o.Share
		calls[o.Op] += o.Calls
		if i > 0 {
			assert.LessOrEqual(t, o.Time, p.Ops[i-1].Time, "the slowest first")
		}
	}
	assert.InDelta(t, 1, share, 1e-9)
	const steps, adapterTensors = 3, 8
	assert.Equal(t, steps*adapterTensors, calls["AdamW"])
	assert.Equal(t, steps, calls["LinearCrossEntropyGrad"])
	table, err := os.ReadFile(l.path("profile/" + opsTable))
	require.NoError(t, err)
	assert.Contains(t, string(table), "LinearCrossEntropyGrad")
}

func TestProfileOfGenerating(t *testing.T) {
	dir := t.TempDir()
	succeed(t, "generate", "--model", llama, "--prompt", "the quick", "-n", "5", "--profile", dir)
	p := readProfile(t, dir)
	calls := map[string]int{}
	for _, o := range p.Ops {
		calls[o.Op] += o.Calls
	}
	assert.Positive(t, calls["Attention"])
	// A profile that cannot be written stops the command before it works.
	file := filepath.Join(dir, opsJSON)
	r := command(t, "", "generate", "--model", llama, "--prompt", "a", "--profile", file)
	assert.Equal(t, ExitUsage, r.status)
	assert.Contains(t, r.stderr, "--profile")
}
