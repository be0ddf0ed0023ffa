package session_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/internal/train/session"
)

// BenchmarkTogether prints how many times as much processor time the calls of eight sessions
// take one after the other as together, for data of so many tokens.
func BenchmarkTogether(b *testing.B) {
	shape := checkpoint.Shape{Name: "bench", Hidden: 512, Layers: 2, Inter: 2048, Heads: 8, KVHeads: 2, Vocab: 4000, Positions: 512}
	dir := b.TempDir()
	require.NoError(b, shape.Write(dir))
	for _, precision := range []backend.Precision{backend.BF16, backend.F32} {
		for _, length := range []int{8, 64} {
			b.Run(fmt.Sprintf("%v, %d tokens", precision, length), func(b *testing.B) {
				h := openWith(b, dir, backend.Options{Threads: 1, BatchInvariant: true, Precision: precision})
				g := session.NewGroup(h)
				var sessions []*session.Session
				for i := range 8 {
					s, err := g.New(ctx, session.Options{Rank: 16, Seed: uint64(i), Attention: true, MLP: true})
					require.NoError(b, err)
					sessions = append(sessions, s)
				}
				d := session.Datum{Tokens: make([]int32, length), Targets: make([]int32, length)}
				for i := range d.Tokens {
					d.Tokens[i], d.Targets[i] = int32(i*131%shape.Vocab), int32(i*17%shape.Vocab)
				}
				call := func(s *session.Session) {
					_, err := s.ForwardBackward(ctx, []session.Datum{d, d, d, d, d}, session.Loss{Name: "cross_entropy"}, false)
					assert.NoError(b, err)
				}
				measure := func(do func()) time.Duration {
					began := processor(b)
					do()
					return processor(b) - began
				}
				apart := func() {
					for _, s := range sessions {
						call(s)
					}
				}
				together := func() {
					var wait sync.WaitGroup
					h.Lock()
					for _, s := range sessions {
						wait.Go(func() { call(s) })
					}
					h.Unlock()
					wait.Wait()
				}
				apart()
				together() // compiles
				var a, t time.Duration
				for b.Loop() {
					a += measure(apart)
					t += measure(together)
				}
				b.ReportMetric(a.Seconds()/t.Seconds(), "times")
			})
		}
	}
}

// processor is the processor time of this process.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
