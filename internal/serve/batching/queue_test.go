package batching

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestQueueIsFair: of two flows that both wait all the time neither gets more than the
// other by more than the longest texts of both; one that comes back gains nothing by its
// absence; and flows that have nothing to do are forgotten when others have caught up.
func TestQueueIsFair(t *testing.T) {
	const longest = 50
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		flows := rapid.IntRange(2, 5).Draw(t, "flows")
		key := func(i int) flowKey { return flowKey{client: fmt.Sprint(i)} }
		number := uint64(0)
		push := func(i int) {
			number++
			q.push(&text{r: &request{number: number, flow: key(i)}})
		}
		for step := range 200 {
			for i := range flows {
				f := q.flows[key(i)]
				waits := f != nil && len(f.waiting) > 0
				if always := i < 2; always && !waits || rapid.IntRange(0, 9).Draw(t, "comes") == 0 {
					push(i)
				}
			}
			heads := q.heads()
			for i := 1; i < len(heads); i++ {
				require.LessOrEqual(t, q.flows[heads[i-1].r.flow].served, q.flows[heads[i].r.flow].served)
			}
			next := heads[0]
			q.started(next.r.flow)
			q.remove(next)
			q.serve(next.r.flow, rapid.IntRange(1, longest).Draw(t, "tokens"))
			q.ended(next.r.flow)
			a, b := q.flows[key(0)], q.flows[key(1)]
			if a != nil && b != nil && step > 1 {
				require.LessOrEqual(t, max(a.served-b.served, b.served-a.served), int64(2*longest))
			}
		}
		for q.count > 0 {
			next := q.heads()[0]
			q.started(next.r.flow)
			q.remove(next)
			q.ended(next.r.flow)
		}
		q.forget()
		require.Empty(t, q.flows)
	})
}
