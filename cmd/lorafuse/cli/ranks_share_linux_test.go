package cli

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRanksShare: commands that share their work write the same on MPI ranks as alone. An error of one rank is one line.
func TestRanksShare(t *testing.T) {
	c := newCluster(t)
	dir, embedding := c.flux()
	lines, _ := promptLines(t, 40)
	prompts := c.file("prompts.jsonl", strings.Join(lines, "\n"))
	for _, args := range [][]string{
		{"eval", "--model", llama, "--data", c.evalRows(9), "--batch-size", "2", "--json"},
		{"generate", "--model", llama, "--prompts", prompts, "--batch-invariant", "-n", "8", "--temperature", "1.5"},
		{"embed", "--model", encoders + "/bert", "--input", c.file("texts.txt", strings.Repeat("the quick brown fox\na cat\n", 30)), "--batch-tokens", "64", "--output", c.path("out")},
		{"draw", "--model", dir, "--embedding", embedding, "--size", "16x16", "--steps", "2", "--seed", "1,2,3", "-o", c.path("out.png")},
	} {
		t.Run(args[0], func(t *testing.T) {
			run := func(program string, size int) (printed, written string) {
				out := c.file("printed", "")
				shell := slices.Concat([]string{"sh", "-c", `exec "$@" >>"$0"`, out, program}, args)
				if size == 0 {
					text, err := exec.Command(shell[0], shell[1:]...).CombinedOutput()
					require.NoError(t, err, string(text))
				} else {
					status, text := c.start(size, nil, shell...).wait()
					require.Zero(t, status, text)
				}
				raw, err := os.ReadFile(out)
				require.NoError(t, err)
				for _, file := range []string{c.path("out"), c.path("out.png")} {
					more, _ := os.ReadFile(file) // of some of the commands
					written += string(more)
					_ = os.Remove(file)
				}
				return string(raw), written
			}
			printed, written := run(c.static, 0)
			require.NotEmpty(t, printed+written)
			for _, size := range worldSizes() {
				got, file := run(c.ranks, size)
				if args[0] != "draw" { // which prints the time
					require.Equal(t, withoutTimes(t, printed), withoutTimes(t, got), "%d ranks", size)
				}
				require.Equal(t, written, file, "%d ranks", size)
			}
		})
	}
	broken := c.model()
	c.remove(broken + "/model.safetensors")
	script := fmt.Sprintf(`m=%s; case ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} in 1) m=%s;; esac; exec "$0" embed --model $m --input "$1"`, llama, broken)
	status, out := c.start(3, nil, "sh", "-c", script, c.ranks, prompts).wait()
	require.Equal(t, ExitUsage, status, out)
	require.Equal(t, 1, strings.Count(out, "lorafuse: "), out)
	require.Regexp(t, `(?m)^lorafuse: embed: rank 1 on \S+: .*model\.safetensors`, out)
}
