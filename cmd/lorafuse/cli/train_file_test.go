package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForeignKeys: all unknown keys of a file are reported with our names, and files of other trainers are recognised.
func TestForeignKeys(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		name, text string
		says       []string
		last       string
	}{
		{"ours.yaml", "model: m\ndata: {train: t}\nlora_r: 4\nnum_epoch: 1\nload_best: true\nval_set_size: 0.1\n", []string{
			`ours.yaml:3: lora_r: unknown key, here it is called "adapter.r"`, "ours.yaml:4: num_epoch: unknown key", `ours.yaml:6: val_set_size: unknown key, here it is called "data.eval_fraction"`,
		}, "ours.yaml: 4 problems, see above"},
		{"axolotl.yml", "base_model: m\nsequence_len: 64\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 1\nlora_fan_in_fan_out: true\nneftune_noise_alpha: 5\n", []string{
			`axolotl.yml:2: sequence_len: unknown key, here it is called "data.max_length"`, `lora_fan_in_fan_out: unknown key, here it is called "adapter.fan_in_fan_out"`, "axolotl.yml:6: neftune_noise_alpha",
		}, "axolotl.yml is a configuration of axolotl, expected one of lorafuse train: lorafuse config migrate "},
		{"lora.toml", "network_dim = 4\nnetwork_module = \"networks.lora_flux\"\n", []string{"lora.toml:1: found "}, "lora.toml is a configuration of kohya's sd-scripts"},
		{"one.yaml", "model: m\ndata: {train: t}\npeft_use_dora: true\n", []string{`one.yaml:3: peft_use_dora: unknown key, here it is called "adapter.use_dora"`}, "one.yaml:3"},
	} {
		l.file(c.name, c.text)
		r := command(t, "", "train", l.path(c.name))
		require.Equal(t, ExitUsage, r.status, r.stderr)
		for _, s := range c.says {
			require.Contains(t, r.stderr, s)
		}
		lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
		require.Contains(t, lines[len(lines)-1], c.last)
	}
	l.file("idle.yaml", "model: "+l.path("none")+"\ndata: {train: t}\nreport_to: wandb\ndataloader_num_workers: 2\n")
	r := command(t, "", "train", l.path("idle.yaml"))
	require.Contains(t, r.stderr, "idle.yaml:3: report_to: has no effect here\n")
	require.Contains(t, r.stderr, "idle.yaml:4: dataloader_num_workers: has no effect here\n")
}
