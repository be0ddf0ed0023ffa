package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
)

func TestDataOptions(t *testing.T) {
	c, err := Parse("c.yaml", []byte(full))
	require.NoError(t, err)
	assert.Equal(t, data.Options{
		Format: data.FormatText, TrainOn: data.TrainOnAll, MaxLength: 160, OnTooLong: data.Drop,
		DocumentSeparator: data.BlankLine,
	}, c.DataOptions())
	assert.Equal(t, data.LoaderConfig{
		BatchSize: 16, Accumulation: 2, Seed: 1<<64 - 1, DropLast: true, Packing: true, MaxLength: 160,
	}, c.LoaderConfig())

	c, err = Parse("c.yaml", []byte(least), "task=classification", "classification={labels: [no, 1], problem: multi_label_classification}")
	require.NoError(t, err)
	o := c.DataOptions()
	assert.Equal(t, data.LabelledRows, o.Rows)
	assert.Equal(t, data.MultiLabel, o.Problem)
	assert.Equal(t, []string{"no", "1"}, o.Classes)
}

func TestTotalSteps(t *testing.T) {
	for _, c := range []struct {
		set   string
		steps int
	}{
		{"steps=7", 7}, {"epochs=2", 20}, {"epochs=0.25", 3}, {"epochs=0.1", 1}, {"epochs=1.1", 11}, {"epochs=0.29999999999999999", 3},
	} {
		cfg, err := Parse("c.yaml", []byte(least), c.set)
		require.NoError(t, err)
		assert.Equal(t, c.steps, cfg.TotalSteps(10), c.set)
	}
}

func TestDeviceOptions(t *testing.T) {
	c, err := Parse("c.yaml", []byte(least), "threads=3", "precision=bf16", "load=plain", "batch_invariant=true")
	require.NoError(t, err)
	assert.Equal(t, backend.Options{Threads: 3, Precision: backend.BF16, Load: backend.LoadPlain, BatchInvariant: true}, c.DeviceOptions())
}

func TestDevicesAndTimeout(t *testing.T) {
	for text, want := range map[string]string{"all": "all", "1": "1", "[0, 2]": "0,2", `"0,2"`: "0,2"} {
		c, err := Parse("c.yaml", []byte(least+"devices: "+text+"\n"))
		require.NoError(t, err, text)
		assert.Equal(t, Devices(want), c.Devices, text)
	}
	for text, want := range map[string]time.Duration{"90": 90 * time.Second, "2m": 2 * time.Minute, "1h30m": 90 * time.Minute, "1.5": 1500 * time.Millisecond} {
		c, err := Parse("c.yaml", []byte(least+"distributed_timeout: "+text+"\n"))
		require.NoError(t, err, text)
		assert.Equal(t, Duration(want), c.DistributedTimeout, text)
	}
	for _, line := range []string{"distributed_timeout: soon", "distributed_timeout: 0", "distributed_timeout: [1]", "devices: {a: 1}", "devices: [[1]]"} {
		_, err := Parse("c.yaml", []byte(least+line+"\n"))
		require.Error(t, err, line)
		t.Log(err)
	}
}
