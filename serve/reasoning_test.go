package serve

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// The reasoning of an answer does not depend on how its tokens split it.
func TestThinking(t *testing.T) {
	marks := thinkMarks{"<think>", "</think>"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"<think>", "</think>", "<", "</", "think>", "\n", " ", "a", "ö"}), 0, 12).Draw(t, "parts"), "")
		prompt := rapid.SampledFrom([]string{"user:", "user:<think>\n"}).Draw(t, "prompt")
		wantReasoning, wantRest := newThinking(marks, prompt).push(text, true)
		x := newThinking(marks, prompt)
		var reasoning, rest string
		for left := text; ; {
			n := rapid.IntRange(0, len(left)).Draw(t, "n")
			a, b := x.push(left[:n], n == len(left))
			reasoning, rest = reasoning+a, rest+b
			if left = left[n:]; left == "" {
				break
			}
		}
		assert.Equal(t, [2]string{wantReasoning, wantRest}, [2]string{reasoning, rest}, text)
	})
	for text, want := range map[string][2]string{
		"a<think>b":                           {"", "a<think>b"},
		" \n<think>\n\na\nb\n</think>\n\nc\n": {"a\nb", "c\n"},
		"<think></think>":                     {"", ""},
		"<think>a</thin":                      {"a</thin", ""},
	} {
		a, b := newThinking(marks, "").push(text, true)
		assert.Equal(t, want, [2]string{a, b}, text)
	}
	_, rest := newThinking(thinkMarks{}, "").push("<think>a", false)
	assert.Equal(t, "<think>a", rest)
}
