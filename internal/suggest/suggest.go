// Package suggest finds valid names similar to a mistyped name, for the "did you
// mean" part of error messages, and formats the expected values.
package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Nearest returns at most limit candidates that resemble name, best first.
// Candidates at the same distance are sorted alphabetically, so the result does
// not depend on the order of candidates. Names that are too different to be a
// typo are omitted: the result may be empty.
//
// The distance is the Damerau–Levenshtein distance in its optimal string
// alignment form (insert, delete, replace, swap neighbors), ignoring case and
// treating '-' and '_' as equal. A candidate that contains name, or has it as
// one of its dotted parts ("q_proj" in "self_attn.q_proj"), is near too.
func Nearest(name string, candidates []string, limit int) []string {
	near := ranked(name, candidates)
	names := make([]string, 0, min(len(near), max(limit, 0)))
	for _, s := range near {
		if len(names) == cap(names) {
			break
		}
		names = append(names, s.name)
	}
	return names
}

// DidYouMean returns the end of an error message: `, did you mean
// "lora_alpha"?` or `, did you mean "a", "b" or "c"?`. It contains the nearest
// candidate, or up to three equally near ones. It is empty if none is near.
func DidYouMean(name string, candidates []string) string {
	near := ranked(name, candidates)
	for i := range near {
		if i == 3 || near[i].distance > near[0].distance {
			near = near[:i]
			break
		}
	}
	if len(near) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(", did you mean ")
	for i, n := range near {
		switch {
		case i == 0:
		case i == len(near)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(n.name))
	}
	b.WriteByte('?')
	return b.String()
}

// Expected returns the end of an error message for a name that is not one of a few
// words: `found "fp16", expected f32 or bf16, did you mean "bf16"?`.
func Expected(name string, words []string) string {
	return fmt.Sprintf("found %q, expected %s%s", name, Or(words), DidYouMean(name, words))
}

// Or joins words to "a, b or c".
func Or(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

type scored struct {
	name     string
	distance int
}

// ranked scores the candidates that resemble name and sorts them.
func ranked(name string, candidates []string) []scored {
	folded := fold(name)
	if len(folded) == 0 {
		return nil
	}
	var near []scored
	seen := make(map[string]bool, len(candidates))
	for _, c := range candidates {
		if seen[c] {
			continue
		}
		seen[c] = true
		if d, ok := distance(folded, fold(c)); ok {
			near = append(near, scored{c, d})
		}
	}
	slices.SortFunc(near, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	return near
}

// fold removes differences that are never significant in names.
func fold(s string) []rune {
	r := []rune(s)
	for i, c := range r {
		if c == '-' {
			c = '_'
		}
		r[i] = unicode.ToLower(c)
	}
	return r
}

// distance scores candidate c for name. It returns false if they do not
// resemble each other. The score is 0 if they are equal after folding, and
// otherwise the number of edits. A name contained in the candidate scores worse
// than any plausible typo of the same length.
func distance(name, c []rune) (int, bool) {
	// A third of the letters may be wrong: with more, different words of one
	// vocabulary ("rank", "bias") would be suggested for each other.
	allowed := (max(len(name), len(c)) + 2) / 3
	if diff := len(name) - len(c); diff <= allowed && -diff <= allowed {
		if d := edits(name, c); d <= allowed {
			return d, true
		}
	}
	if len(name) >= 3 && strings.Contains(string(c), string(name)) {
		return len(c) - len(name) + 1, true
	}
	return 0, false
}

// edits returns the optimal string alignment distance.
func edits(a, b []rune) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
