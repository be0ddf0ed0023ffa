package cli

import (
	"context"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lookedAt is a context that ends the n-th time somebody looks whether it has.
type lookedAt struct {
	context.Context
	end   context.CancelFunc
	n     int64
	looks atomic.Int64
}

func (c *lookedAt) Err() error {
	if c.looks.Add(1) == c.n {
		c.end()
	}
	return c.Context.Err()
}

// TestInterruptFirstEvaluation: the first step is done and its evaluation is
// not. The command that is printed goes on with it.
func TestInterruptFirstEvaluation(t *testing.T) {
	l := newLab(t)
	file := l.settings(llama, "eval_steps: 1\n")
	l.file("eval.jsonl", strings.Repeat(`{"text": "one more line"}`+"\n", 64))
	args := []string{"train", file, "--set", "steps=1", "--set", "data.eval=" + l.path("eval.jsonl")}
	for n := int64(100); ; n += 100 {
		ctx, end := context.WithCancel(context.Background())
		var errs strings.Builder
		status := Run(&lookedAt{Context: ctx, end: end, n: n}, args, strings.NewReader(""), io.Discard, &errs)
		end()
		require.Equal(t, ExitInterrupted, status, "the evaluation was not interrupted: %s", &errs)
		if !strings.Contains(errs.String(), "interrupted after step 1 of 1") {
			assert.Contains(t, errs.String(), ": lorafuse "+strings.Join(args, " ")+"\n", "nothing is there to go on with")
			require.NoError(t, os.RemoveAll(l.path("output")))
			continue
		}
		assert.Contains(t, errs.String(), "go on with --resume: lorafuse "+strings.Join(args, " ")+" --resume\n")
		break
	}
	succeed(t, append(args, "--resume")...)
	assert.Contains(t, readText(t, l.path("output/metrics.jsonl")), `"eval_loss":`)
}

// TestAgain: where there is nothing new, a run goes on from where this one did.
func TestAgain(t *testing.T) {
	a := &app{}
	for _, c := range []struct {
		resume string
		saved  bool
		want   string
	}{
		{"", false, "lorafuse train t.yaml"},
		{"", true, "lorafuse train t.yaml --resume"},
		{latest, false, "lorafuse train t.yaml --resume"},
		{"old run/checkpoint-2", false, "lorafuse train t.yaml --resume='old run/checkpoint-2'"},
		{"old run/checkpoint-2", true, "lorafuse train t.yaml --resume"},
	} {
		given := map[string]string{}
		f := &trainFlags{resume: c.resume, text: func(flag string) string { return given[flag] }}
		assert.Equal(t, c.want, a.again("t.yaml", f, c.saved))
		given["memory"], given["load"] = "4 GiB", "ring"
		assert.Equal(t, c.want+" --memory '4 GiB' --load ring", a.again("t.yaml", f, c.saved))
	}
}
