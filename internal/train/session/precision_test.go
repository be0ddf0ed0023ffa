package session_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/train/session"
	"github.com/lorafuse/lorafuse/lora"
)

// Devices that round, or that make rows independent of each other, and quantised weights:
// the cut and the threads change nothing there either.
func TestBitsByPrecision(t *testing.T) {
	for _, method := range []quant.Method{quant.None, quant.Bit4, quant.Int8} {
		m, err := model.Open(llama)
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		if method != quant.None {
			require.NoError(t, m.Quantize(method, nil))
		}
		for _, o := range []backend.Options{{}, {Precision: backend.BF16}, {BatchInvariant: true}, {BatchInvariant: true, Precision: backend.BF16}} {
			t.Run(fmt.Sprintf("%v %v invariant %v", method, o.Precision, o.BatchInvariant), func(t *testing.T) {
				base := func(threads int) *host.Host {
					o := o
					o.Threads = threads
					r := host.Open(testdevice.Open(t, o), m)
					t.Cleanup(r.Close)
					return r
				}
				one, two := base(1), base(2)
				for i := range 2 {
					lessons := rapid.Custom(drawLessons).Example(i)
					run := func(b *host.Host, cut func(int) int) lora.Digest {
						s, err := session.NewGroup(b).New(ctx, all)
						require.NoError(t, err)
						defer s.Close()
						s.SetLogits(30)
						take(t, s, lessons, cut, func() {})
						return digest(t, s)
					}
					require.Equal(t, run(one, whole), run(two, func(int) int { return 1 }))
				}
			})
		}
	}
}
