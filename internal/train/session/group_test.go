package session_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/draws"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/train/session"
)

// mixes returns the numbers of sessions of the passes that are cached.
func mixes(h *host.Host) (all []string) {
	h.UnloadFunc(func(name string, _ *engine.Program) bool {
		if _, n, ok := strings.Cut(name, " sessions:"); ok {
			all = append(all, strings.TrimSuffix(n, "}"))
		}
		return false
	})
	slices.Sort(all)
	return slices.Compact(all)
}

// Calls that wait at the same time are computed together, and each has the results and the
// gradients that it has alone, bit for bit.
func TestTogether(t *testing.T) {
	var hosts []*host.Host
	for i, dir := range []string{llama, qwen, "../../../testdata/lm/gemma3/model"} {
		hosts = append(hosts, openWith(t, dir, backend.Options{Threads: 1 + i%2, BatchInvariant: true}))
	}
	together := 0
	draws.Check(t, 10, func(t *rapid.T) {
		h := rapid.SampledFrom(hosts).Draw(t, "model")
		type client struct {
			options     session.Options
			lessons     []lesson
			forwardOnly bool
			session     *session.Session
			out         *session.Output
		}
		run := func(c *client) {
			var err error
			c.out, err = c.session.ForwardBackward(ctx, c.lessons[0].data, c.lessons[0].loss, c.forwardOnly)
			assert.NoError(t, err)
			take(t, c.session, c.lessons, whole, func() {})
		}
		g := session.NewGroup(h)
		var all []*client
		for i := range rapid.IntRange(2, 4).Draw(t, "sessions") {
			c := &client{lessons: drawLessons(t), forwardOnly: rapid.IntRange(0, 4).Draw(t, "forward only") == 0}
			c.options = session.Options{Rank: rapid.SampledFrom([]int{1, 4, 4, 7}).Draw(t, "rank"), Seed: uint64(i), Attention: true, MLP: rapid.Bool().Draw(t, "mlp")}
			c.options.Unembed = rapid.IntRange(0, 9).Draw(t, "unembed") == 0
			var err error
			c.session, err = g.New(ctx, c.options)
			require.NoError(t, err)
			all = append(all, c)
		}
		var wait sync.WaitGroup
		h.Lock() // so that all calls wait
		for _, c := range all {
			wait.Go(func() { run(c) })
		}
		h.Unlock()
		wait.Wait()
		if len(mixes(h)) > 1 {
			together++
		}
		for _, c := range all {
			got, out := digest(t, c.session), c.out
			c.session.Close()
			var err error
			c.session, err = session.NewGroup(h).New(ctx, c.options)
			require.NoError(t, err)
			run(c)
			require.Equal(t, out, c.out)
			require.Equal(t, digest(t, c.session), got)
			c.session.Close()
		}
		require.Empty(t, mixes(h), "programs of closed sessions")
	})
	require.NotZero(t, together, "no pass had data of several sessions")
}
