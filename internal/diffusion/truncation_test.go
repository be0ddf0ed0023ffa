package diffusion

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTruncations: a text that is too long is cut, and its end is reported for each encoder
// that does not read it.
func TestTruncations(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("one two three ", 700)) + " with a zebra"
	middle := strings.TrimSpace(strings.Repeat("one two three ", 20)) + " with a zebra"
	for name, x := range map[string]struct{ long, middle map[string]int }{
		"qwenimage":   {map[string]int{TextEncoder: 1058}, nil},
		"zimage":      {map[string]int{TextEncoder: 512}, nil},
		"flux2-klein": {map[string]int{TextEncoder: 512}, nil},
		"kandinsky5":  {map[string]int{TextEncoder: 552, TextEncoder2: 77}, map[string]int{TextEncoder2: 77}},
		"flux":        {map[string]int{TextEncoder: 77, TextEncoder2: 512}, map[string]int{TextEncoder: 77}},
	} {
		t.Run(name, func(t *testing.T) {
			e := encoderOf(t, goldenPipeline(t, name))
			check := func(text string, want map[string]int) {
				_, err := e.Encode(t.Context(), text)
				require.NoError(t, err)
				found := map[string]int{}
				for _, x := range e.Truncations() {
					found[x.Encoder] = x.MaxTokens
					assert.Greater(t, x.Tokens, x.MaxTokens)
					end := strings.TrimSpace(x.Text)
					assert.True(t, strings.HasSuffix(end, "with a zebra"), "%s: …%q", x.Encoder, end[max(0, len(end)-60):])
					assert.True(t, strings.HasSuffix(text, end), "%s: …%q", x.Encoder, end[max(0, len(end)-60):])
				}
				if len(want) == 0 {
					assert.Empty(t, found)
				} else {
					assert.Equal(t, want, found)
				}
			}
			check(long, x.long)
			if name == "flux" || name == "kandinsky5" {
				check(middle, x.middle)
			}
			check("a zebra", nil)
		})
	}
}
