package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// TestModelCutShortUnderWay: weights stay in the mapped file, so that a run meets a file that
// is cut short wherever it reads, on whatever goroutine, in Go or in assembly. It ends with
// one line that names the file, and what it had saved is whole.
func TestModelCutShortUnderWay(t *testing.T) {
	for name, more := range map[string][]string{
		"one thread": {"--set", "threads=1"}, "threads": {"--set", "threads=4"}, "portable": {"--set", "threads=4"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			m := l.model()
			file := l.settings(m, "save_steps: 20\nsave_limit: 2\n")
			c, errs := program(t, append([]string{"train", file, "--set", "steps=1000000"}, more...)...)
			if name == "portable" {
				c.Env = append(c.Env, "LORAFUSE_CPU=portable")
			}
			require.NoError(t, c.Start())
			awaitSteps(t, l.path("output/metrics.jsonl"), 45)
			require.NoError(t, os.Truncate(filepath.Join(m, "model.safetensors"), 0))
			killed := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
			defer killed.Stop()
			_ = c.Wait()
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
			last := lines[len(lines)-1]
			assert.Equal(t, ExitFailure, c.ProcessState.ExitCode(), errs.String())
			assert.Regexp(t, `^lorafuse: .*model\.safetensors: byte \d+ of the file: file could not be read`, last)
			assert.NotContains(t, errs.String(), "goroutine ")
			var saved []string
			for path := range l.tree() {
				if strings.HasPrefix(path, l.path("output")) && strings.HasSuffix(path, ".safetensors") {
					saved = append(saved, path)
				}
			}
			require.NotEmpty(t, saved)
			for _, path := range saved {
				f, err := safetensors.Open(path)
				require.NoError(t, err)
				require.NoError(t, f.Close())
			}
		})
	}
}

// TestModelCutShortWhileItAnswers does the same to generate, which has no
// progress but its text.
func TestModelCutShortWhileItAnswers(t *testing.T) {
	for _, threads := range []string{"1", "4"} {
		l := newLab(t)
		m := l.model()
		l.setJSON(m+"/config.json", map[string]any{"max_position_embeddings": 1 << 20})
		c, errs := program(t, "generate", "--model", m, "--prompt", "x", "-n", "1000000", "--threads", threads)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		killed := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
		defer killed.Stop()
		_, err = out.Read(make([]byte, 1)) // it has begun
		require.NoError(t, err)
		require.NoError(t, os.Truncate(filepath.Join(m, "model.safetensors"), 0))
		_, err = io.Copy(io.Discard, out)
		require.NoError(t, err)
		_ = c.Wait()
		assert.Equal(t, ExitFailure, c.ProcessState.ExitCode(), errs.String())
		assert.Regexp(t, `^lorafuse: .*model\.safetensors: byte \d+ of the file: file could not be read.*\n$`, errs.String())
		assert.NotContains(t, errs.String(), "goroutine ")
	}
}
