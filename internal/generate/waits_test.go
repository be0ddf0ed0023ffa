package generate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
)

// TestATokenWaitsOnce: a token takes one upload, one run and one wait, for its
// logits; and what a device does late is the same.
func TestATokenWaitsOnce(t *testing.T) {
	m, err := model.Open(llama)
	require.NoError(t, err)
	defer m.Close()
	o := generate.GenerateOptions{MaxNewTokens: 12, IgnoreEOS: true}
	s := state(t, m, adapters+"dora")
	plain, _ := open(t, llama)
	want, err := generator(t, plain, m, s, generate.Options{}).Generate(ctx, tokens(m, 9), o, nil)
	require.NoError(t, err)

	dev := testdevice.Count(testdevice.NewLazy(t))
	g := generator(t, dev, m, s, generate.Options{})
	first := 0
	got, err := g.Generate(ctx, tokens(m, 9), o, func(generate.Token) error {
		if first++; first > 2 {
			require.Equal(t, [3]int{1, 1, 1}, [3]int{dev.Waits, dev.Uploads, dev.Runs})
		}
		dev.Waits, dev.Uploads, dev.Runs = 0, 0, 0
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, want.IDs, got.IDs)
}
