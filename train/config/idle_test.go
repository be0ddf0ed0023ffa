package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAllProblems(t *testing.T) {
	_, err := Parse("c.yaml", []byte(least+"lora_r: 8\nadapter: {rank: 4, colour: red}\nseed: x\nnum_epochs: 1\nseed: 3\njobs: [{name: a}]\n"))
	all, ok := err.(Errors)
	require.True(t, ok, "%v", err)
	var got []string
	for _, e := range all {
		got = append(got, e.Place+" "+e.Key)
	}
	assert.Equal(t, []string{"c.yaml:3 lora_r", "c.yaml:4 adapter.rank", "c.yaml:4 adapter.colour", "c.yaml:5 seed", "c.yaml:6 num_epochs", "c.yaml:7 seed"}, got)
	for _, kind := range []error{ErrUnknownKey, ErrValue, ErrSyntax} {
		assert.ErrorIs(t, err, kind)
	}

	_, err = Parse("c.yaml", []byte(least+"task: diffusion\nimg_dirs: d\ndata_config: {img_dirs: e}\nnoise_offset: 1\n"))
	require.ErrorContains(t, err, "c.yaml:4: img_dirs")
	require.ErrorContains(t, err, "c.yaml:5: data_config.img_dirs: unknown key")
	require.ErrorContains(t, err, "c.yaml:6: noise_offset: nothing reads it")

	_, err = Parse("c.yaml", []byte(least+"jobs:\n- name: a\n  lora_r: 3\n  colour: red\n"))
	require.ErrorContains(t, err, "c.yaml:5: jobs[a].lora_r: unknown key")
	require.ErrorContains(t, err, "c.yaml:6: jobs[a].colour: unknown key")
}

// TestManyProblems: the list of problems is bounded.
func TestManyProblems(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	_, err := Parse("c.yaml", []byte(b.String()))
	require.Len(t, err, mostErrors)
	require.ErrorContains(t, err, "problem 100; later ones are not listed")
}

func TestIdleKeys(t *testing.T) {
	c, err := Parse("c.yaml", []byte(least+"dataloader_num_workers: 4\nreport_to: wandb\nwandb_project: x\nlog: {logging_dir: x}\nnumpy_seed: 1\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"c.yaml:3: dataloader_num_workers", "c.yaml:4: report_to", "c.yaml:5: wandb_project", "c.yaml:6: log.logging_dir", "c.yaml:7: numpy_seed"}, c.Idle())

	c, err = Parse("c.yaml", []byte("model: m\ntask: diffusion\ndata_config: {img_dir: d, num_workers: 4}\ntracker_project_name: x\nreport_to: wandb\n"))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"c.yaml:3: data_config.num_workers", "c.yaml:4: tracker_project_name", "c.yaml:5: report_to"}, c.Idle())
	assert.True(t, c.Log.TensorBoard)

	c, err = Parse("c.yaml", []byte(least+"jobs:\n- name: a\n  steps: 3\n  run_name: x\n"))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	assert.Equal(t, []string{"c.yaml:6: run_name"}, c.Idle())

	c, err = Parse("c.yaml", []byte(least+"report_to: [tensorboard, mlflow]\nmlflow_experiment_name: x\nlog_with: mlflow\n"))
	require.NoError(t, err)
	for i, key := range []string{"report_to", "mlflow_experiment_name", "log_with"} {
		assert.Equal(t, fmt.Sprintf("c.yaml:%d: %s (log.mlflow logs to MLflow)", 3+i, key), c.Idle()[i])
	}

	_, err = Parse("c.yaml", []byte(least+"adapter: {num_workers: 1}\n"))
	require.ErrorIs(t, err, ErrUnknownKey)
	for _, k := range Keys() { // no key, or name of one in other trainers, counts as idle
		_, leaf := split(k.Path)
		for _, name := range append([]string{leaf}, k.also...) {
			assert.False(t, IsIdle(name), name)
		}
	}
}
